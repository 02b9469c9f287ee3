//! What members contribute, and what must come of it.
//!
//! Every element is drawn from (group, operation, member, position), so a contribution that is
//! counted twice, left out, taken from another member, operation, group or job shows in the bits of
//! the result. Floats differ so much in magnitude that the order of additions shows as well.

use half::{bf16, f16};
use tributary_reduce::oracle;
use tributary_wire::{Datatype, Operator};

/// What a swarm's operations compute. Sums and exclusive ors show every double or missing count;
/// the others show that values keep their places.
pub(super) const KERNELS: [(Operator, Datatype); 10] = [
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

/// Whose vector it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stream {
    /// Differs for every incarnation of every group of every job.
    pub(super) tag: u64,
    pub(super) operation: u32,
    pub(super) member: u32,
}

impl Stream {
    fn word(self, index: u64) -> u64 {
        let place = (u64::from(self.operation) << 40) ^ (u64::from(self.member) << 20) ^ index;
        mix(self.tag ^ mix(place))
    }

    /// Appends the elements from `first` to before `end`.
    pub(super) fn append(self, datatype: Datatype, first: u64, end: u64, bytes: &mut Vec<u8>) {
        for index in first..end {
            let word = self.word(index);
            match datatype {
                Datatype::F64 => bytes.extend(number(word).to_le_bytes()),
                Datatype::F32 => bytes.extend((number(word) as f32).to_le_bytes()),
                Datatype::F16 => bytes.extend(f16::from_f64(number(word)).to_le_bytes()),
                Datatype::Bf16 => bytes.extend(bf16::from_f64(number(word)).to_le_bytes()),
                // An even factor would soon make every product zero.
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
pub(super) fn mix(word: u64) -> u64 {
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

/// A group's tree as results depend on it: per node, what stands below it, in order.
#[derive(Clone, Debug, Default)]
pub(super) struct Shape {
    /// Root first; children come after their parents.
    pub(super) nodes: Vec<Vec<Below>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Below {
    Node(usize),
    Member(u32),
}

impl Shape {
    /// The reduction at the root: at every node the children in order, 16-bit floats rounded once.
    pub(super) fn reduce(
        &self,
        operator: Operator,
        datatype: Datatype,
        elements: u64,
        stream: Stream,
    ) -> Vec<u8> {
        let mut made: Vec<Vec<u8>> = vec![Vec::new(); self.nodes.len()];
        for at in (0..self.nodes.len()).rev() {
            let contributions: Vec<Vec<u8>> = self.nodes[at]
                .iter()
                .map(|below| match *below {
                    Below::Node(node) => std::mem::take(&mut made[node]),
                    Below::Member(member) => {
                        let mut bytes = Vec::new();
                        Stream { member, ..stream }.append(datatype, 0, elements, &mut bytes);
                        bytes
                    }
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

    #[test]
    fn a_double_or_missing_count_shows() {
        let stream = Stream { tag: 7, operation: 3, member: 0 };
        let shape = |members: &[u32]| Shape {
            nodes: vec![members.iter().map(|member| Below::Member(*member)).collect()],
        };
        for (operator, datatype) in KERNELS.into_iter().take(6) {
            let of = |members: &[u32]| shape(members).reduce(operator, datatype, 4, stream);
            let honest = of(&[0, 1, 2]);
            assert_ne!(honest, of(&[0, 1, 1, 2]), "{operator:?} {datatype:?}");
            assert_ne!(honest, of(&[0, 2]), "{operator:?} {datatype:?}");
            assert_ne!(honest, of(&[0, 1, 3]), "{operator:?} {datatype:?}");
        }
    }

    #[test]
    fn the_order_of_additions_shows() {
        let differs = (0..50).any(|tag| {
            let stream = Stream { tag, operation: 0, member: 0 };
            let of = |members: [u32; 3]| {
                let nodes = vec![members.map(Below::Member).to_vec()];
                Shape { nodes }.reduce(Operator::Sum, Datatype::F64, 8, stream)
            };
            of([0, 1, 2]) != of([2, 1, 0])
        });
        assert!(differs);
    }
}
