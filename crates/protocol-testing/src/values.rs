//! What operations compute, and their results. Floats differ so much in magnitude that the order of additions shows.

use tributary_reduce::oracle;
use tributary_wire::{Datatype, Operator};

pub use crate::contribution::{Contribution, mix};
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
    pub fn expected_result(&self, plan: &OperationPlan, tag: u64, operation: usize) -> Vec<u8> {
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
        TreeShape { nodes }.expected_result(&plan, tag, 3)
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
