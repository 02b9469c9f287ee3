//! Operations as all members of a group mean them.
//!
//! Owns what each member tells its endpoint about a collective operation, and the mixture from
//! which random operations are drawn. It draws nothing itself: numbers come from the caller's seed.

use tributary_protocol::endpoint::OperationSpec;
use tributary_wire::frame::Target;
use tributary_wire::{Datatype, EndpointId, Operator};

use crate::contribution::Contribution;
use crate::exact;

/// One collective operation, as all members mean it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OperationPlan {
    /// How elements combine.
    pub operator: Operator,
    /// What an element is.
    pub datatype: Datatype,
    /// How many elements.
    pub elements: u64,
    /// Where the result goes.
    pub target: Target,
    /// The member that brings a broadcast's data.
    pub source: EndpointId,
    /// Whether its vector goes as a stream, where the group may stream.
    pub is_stream: bool,
    /// The type of the floats whose exact sums its integers are; none for elements that are what they seem.
    pub exact_sums_of: Option<Datatype>,
}

/// The mixture from which operations are drawn.
#[derive(Clone, Copy, Debug)]
pub struct Mixture<'a> {
    /// What is computed.
    pub kernels: &'a [(Operator, Datatype)],
    /// The group's members.
    pub members: u32,
    /// Its longest segment.
    pub segment_bytes: u32,
    /// Of eight vectors, how many have a few elements only. Two more fill a segment. Half of the
    /// others have up to three segments.
    pub short_of_eight: u64,
    /// How many segments the rest have at most.
    pub segments_max: u64,
}

impl Mixture<'_> {
    /// `below` gives a number below its argument, which is never 0.
    ///
    /// # Panics
    /// If there are no kernels, no members, or an element that is longer than a segment.
    pub fn draw(&self, below: &mut impl FnMut(u64) -> u64) -> OperationPlan {
        let (operator, datatype) = self.kernels[below(self.kernels.len() as u64) as usize];
        let per_segment = u64::from(self.segment_bytes) / datatype.size_bytes() as u64;
        let segment_from = self.short_of_eight;
        let elements = match below(8) {
            length if length < segment_from => 1 + below(per_segment.min(4)),
            length if length < segment_from + 2 => per_segment,
            length if length % 2 == 0 => 1 + below(3 * per_segment),
            _ => 1 + below(self.segments_max * per_segment),
        };
        let member = EndpointId(below(u64::from(self.members)) as u32);
        let plan = OperationPlan {
            source: member,
            ..OperationPlan::allreduce(operator, datatype, elements)
        };
        match below(10) {
            0..5 => plan,
            5 | 6 => OperationPlan { target: Target::Member(member), ..plan },
            7 | 8 => OperationPlan { operator: Operator::Broadcast, ..plan },
            _ => OperationPlan { source: member, ..OperationPlan::barrier() },
        }
    }
}

impl OperationPlan {
    /// An operation to which all members contribute, and whose result all get.
    #[must_use]
    pub const fn allreduce(operator: Operator, datatype: Datatype, elements: u64) -> Self {
        let (target, source) = (Target::All, EndpointId(0));
        let (is_stream, exact_sums_of) = (false, None);
        Self { operator, datatype, elements, target, source, is_stream, exact_sums_of }
    }

    /// An operation without data.
    #[must_use]
    pub const fn barrier() -> Self {
        Self::allreduce(Operator::Barrier, Datatype::U8, 0)
    }

    /// The specification that `member` gives its endpoint.
    #[must_use]
    pub fn spec(&self, member: EndpointId) -> OperationSpec {
        let (contributes, receives) = match self.operator {
            Operator::Barrier => return OperationSpec::BARRIER,
            Operator::Broadcast => (member == self.source, member != self.source),
            _ => (true, self.target.is_all() || self.target.member() == Some(member)),
        };
        OperationSpec {
            operator: self.operator,
            datatype: self.datatype,
            elements: self.elements,
            target: self.target,
            contributes,
            receives,
            // A broadcast's source is in no other field. Its length is in the digest, too, as in that of the product.
            digest: match self.operator {
                Operator::Broadcast => {
                    let word = self.source.0 ^ (self.elements as u32) << 8;
                    word.wrapping_mul(0x9e37_79b9)
                }
                _ => 0,
            },
        }
    }

    /// The operation that sums as many floats of its type exactly; itself if it is no sum of floats.
    #[must_use]
    pub fn with_exact_sums(self) -> Self {
        if self.operator != Operator::Sum || !exact::FORMATS.contains(&self.datatype) {
            return self;
        }
        let elements = self.elements * exact::integers_per_value(self.datatype);
        let exact_sums_of = Some(self.datatype);
        Self { datatype: Datatype::I64, elements, exact_sums_of, ..self }
    }

    /// A member's vector.
    #[must_use]
    pub fn vector(&self, of: Contribution) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.append(of, 0, self.elements, &mut bytes);
        bytes
    }

    /// Appends the elements of a member's vector from `first` to before `end`.
    pub fn append(&self, of: Contribution, first: u64, end: u64, bytes: &mut Vec<u8>) {
        match self.exact_sums_of {
            Some(format) if self.datatype == Datatype::I64 => {
                exact::append(of, format, first, end, bytes);
            }
            _ => of.append(self.datatype, first, end, bytes),
        }
    }

    /// Whether a result is right, as far as its bytes say what they mean: of exact sums, that they are the real ones, rounded.
    #[must_use]
    pub fn is_sound(
        &self,
        result: &[u8],
        members: impl Iterator<Item = Contribution> + Clone,
    ) -> bool {
        match self.exact_sums_of {
            Some(format) if self.operator == Operator::Sum => {
                exact::is_sum(result, format, members)
            }
            _ => true,
        }
    }

    /// Length of a member's vector.
    #[must_use]
    pub const fn len_bytes(&self) -> usize {
        self.elements as usize * self.datatype.size_bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNELS: [(Operator, Datatype); 1] = [(Operator::Sum, Datatype::F64)];

    #[test]
    fn every_kind_of_operation_is_drawn_and_named_alike_by_all() {
        let mut word = 0_u64;
        let mut below = |end: u64| {
            word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (word >> 33) % end
        };
        let mixture = Mixture {
            kernels: &KERNELS,
            members: 5,
            segment_bytes: 24,
            short_of_eight: 2,
            segments_max: 10,
        };
        let mut kinds = [0; 4];
        for _ in 0..1000 {
            let plan = mixture.draw(&mut below);
            assert!(plan.len_bytes() <= 240 && plan.source.0 < 5);
            let specs = [0, 1, 2, 3, 4].map(|member| plan.spec(EndpointId(member)));
            let givers = specs.iter().filter(|spec| spec.contributes).count();
            let takers = specs.iter().filter(|spec| spec.receives).count();
            let kind = match (plan.operator, plan.target) {
                (Operator::Barrier, _) => (0, (0, 0)),
                (Operator::Broadcast, _) => (1, (1, 4)),
                (_, Target::All) => (2, (5, 5)),
                (_, Target::Member(_)) => (3, (5, 1)),
                (_, outside) => panic!("{outside:?} is not drawn"),
            };
            assert_eq!((givers, takers), kind.1, "{plan:?}");
            kinds[kind.0] += 1;
        }
        assert!(kinds.iter().all(|count| *count > 50), "{kinds:?}");
    }
}
