//! What members contribute, and the results.
//!
//! Every element is drawn from (group, operation, member, position). So a contribution that is
//! counted twice, left out, or taken from another member, operation, group or job shows in the bits
//! of the result. Floats differ so much in magnitude that the order of additions shows as well.

use half::{bf16, f16};
use tributary_reduce::oracle;
use tributary_wire::{Datatype, Operator};

use crate::workload::OperationPlan;

/// What operations compute. Sums and exclusive ors show every double or missing count; the others
/// show that values keep their places.
pub const KERNELS: [(Operator, Datatype); 10] = [
    (Operator::Sum, Datatype::I64),
    (Operator::Sum, Datatype::F64),
    (Operator::Sum, Datatype::F32),
    (Operator::Sum, Datatype::F16),
    (Operator::Sum, Datatype::Bf16),
    (Operator::BitXor, Datatype::U64),
    (Operator::Product, Datatype::U32),
    (Operator::Max, Datatype::I32),
    (Operator::MinLoc, Datatype::I32Index),
    (Operator::Sum, Datatype::U8),
];

/// A member's vector for one operation.
#[derive(Clone, Copy, Debug)]
pub struct Contribution {
    /// Differs between groups whose data must differ.
    pub tag: u64,
    /// The operation's number in its group.
    pub operation: u32,
    /// Which member.
    pub member: u32,
}

impl Contribution {
    /// Those of all members of a group.
    pub fn of_all(tag: u64, operation: usize, members: u32) -> impl Iterator<Item = Self> + Clone {
        (0..members).map(move |member| Self { tag, operation: operation as u32, member })
    }

    pub(crate) fn word(self, index: u64) -> u64 {
        let place = (u64::from(self.operation) << 40) ^ (u64::from(self.member) << 20) ^ index;
        mix(self.tag ^ mix(place))
    }

    /// All of its elements.
    #[must_use]
    pub fn bytes(self, datatype: Datatype, elements: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(datatype, 0, elements, &mut bytes);
        bytes
    }

    /// Appends the elements from `first` to before `end`.
    pub fn append(self, datatype: Datatype, first: u64, end: u64, bytes: &mut Vec<u8>) {
        for index in first..end {
            let word = self.word(index);
            match datatype {
                Datatype::F64 => bytes.extend(number(word).to_le_bytes()),
                Datatype::F32 => bytes.extend((number(word) as f32).to_le_bytes()),
                Datatype::F16 => bytes.extend(f16::from_f64(number(word)).to_le_bytes()),
                Datatype::Bf16 => bytes.extend(bf16::from_f64(number(word)).to_le_bytes()),
                // Even factors would soon make every product zero.
                Datatype::U32 => bytes.extend((word as u32 | 1).to_le_bytes()),
                other => {
                    let raw = [word, mix(word)].map(u64::to_le_bytes);
                    bytes.extend_from_slice(&raw.as_flattened()[..other.size_bytes()]);
                }
            }
        }
    }
}

/// SplitMix64's finalizer (Steele, Lea and Flood, OOPSLA 2014).
pub fn mix(word: u64) -> u64 {
    let mut z = word.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// A number between -1 and 1, times a power of ten between -3 and 3.
fn number(word: u64) -> f64 {
    const SCALES: [f64; 8] = [1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3, 1.0];
    let unit = (word >> 11) as f64 / (1_u64 << 52) as f64 - 1.0;
    unit * SCALES[(word & 7) as usize]
}

/// A group's tree, as results depend on it: per aggregator its children, in order.
#[derive(Clone, Debug, Default)]
pub struct TreeShape {
    /// Root first; children come after their parents.
    pub nodes: Vec<Vec<Below>>,
}

/// A child of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Below {
    /// Another aggregator, by its index in the tree.
    Node(usize),
    /// A member.
    Member(u32),
}

impl TreeShape {
    /// The result of an operation, whatever its target.
    #[must_use]
    pub fn expected(&self, plan: &OperationPlan, tag: u64, operation: usize) -> Vec<u8> {
        let of = |member| plan.vector(Contribution { tag, operation: operation as u32, member });
        match plan.operator {
            Operator::Barrier => Vec::new(),
            Operator::Broadcast => of(plan.source.0),
            operator => self.reduce(operator, plan.datatype, of),
        }
    }

    /// The reduction at the root. Every aggregator reduces its children in order and rounds 16-bit floats
    /// once.
    fn reduce(
        &self,
        operator: Operator,
        datatype: Datatype,
        contribution: impl Fn(u32) -> Vec<u8>,
    ) -> Vec<u8> {
        let mut made: Vec<Vec<u8>> = vec![Vec::new(); self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            let contributions: Vec<Vec<u8>> = self.nodes[at]
                .iter()
                .map(|below| match *below {
                    Below::Node(node) => std::mem::take(&mut made[node]),
                    Below::Member(member) => contribution(member),
                })
                .collect();
            let contributions: Vec<&[u8]> = contributions.iter().map(Vec::as_slice).collect();
            made[at] = oracle::accumulate(operator, datatype, &contributions);
        }
        made.swap_remove(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The reduction of `members` below one aggregator.
    fn reduce_members(
        operator: Operator,
        datatype: Datatype,
        tag: u64,
        members: &[u32],
    ) -> Vec<u8> {
        let nodes = vec![members.iter().map(|member| Below::Member(*member)).collect()];
        let plan = OperationPlan::allreduce(operator, datatype, 8);
        TreeShape { nodes }.expected(&plan, tag, 3)
    }

    #[test]
    fn a_double_or_missing_count_shows() {
        for (operator, datatype) in KERNELS.into_iter().take(6) {
            let of = |members: &[u32]| reduce_members(operator, datatype, 7, members);
            let honest = of(&[0, 1, 2]);
            assert_ne!(honest, of(&[0, 1, 1, 2]), "{operator:?} {datatype:?}");
            assert_ne!(honest, of(&[0, 2]), "{operator:?} {datatype:?}");
            assert_ne!(honest, of(&[0, 1, 3]), "{operator:?} {datatype:?}");
        }
    }

    #[test]
    fn the_order_of_additions_shows() {
        let differs = (0..50).any(|tag| {
            let of =
                |members: [u32; 3]| reduce_members(Operator::Sum, Datatype::F64, tag, &members);
            of([0, 1, 2]) != of([2, 1, 0])
        });
        assert!(differs);
    }
}
