//! Which way an operation between hosts goes: the tree or the mesh, and how many leaders share it.
//!
//! A function of the collective and its length alone, equal at all ranks of a communicator. Knows
//! what was measured; must not know how operations run.

use tributary_algorithms::model::{Costs, Design, Job};

use crate::operation::{Collective, Operation};
use crate::report::{Kind, Way};
use crate::settings::AlgorithmChoice;
use crate::tuning::{Joint, Measurement};

/// Most leaders per host that are tried.
pub(crate) const LEADERS_MAX: u32 = 16;
/// Most sub-partitions of a leader's share.
pub(crate) const SUB_PARTITIONS_MAX: u32 = 64;

/// What joins hosts.
pub(crate) type Between = Joint;

/// The ways of one communicator.
#[derive(Clone, Debug, Default)]
pub(crate) struct Ways {
    /// What joins the hosts where nothing was measured; none on one host.
    pub(crate) usual: Option<Between>,
    /// What was measured fastest, for communicators where both ways are open.
    pub(crate) rules: Vec<Measurement>,
    /// Leaders per host, if the user said how many.
    pub(crate) leaders: Option<u32>,
    /// Sub-partitions of each leader's share, if the user said how many.
    pub(crate) sub_partitions: Option<u32>,
    /// Local ranks that can lead on every host: those with links of their own.
    pub(crate) leaders_max: u32,
    /// Measured constants, to choose by where nothing was measured.
    pub(crate) costs: Option<Costs>,
    pub(crate) hosts: u32,
    pub(crate) ranks: u32,
}

impl Ways {
    /// The way of an operation.
    pub(crate) fn way(&self, operation: &Operation) -> Way {
        match self.between(operation) {
            None => Way::InNode,
            Some(Between::Tree) => Way::InTree,
            Some(Between::Mesh) => Way::InMesh,
        }
    }

    /// What joins the hosts for an operation.
    pub(crate) fn between(&self, operation: &Operation) -> Option<Between> {
        let usual = self.usual?;
        let rule = self.rule(operation);
        Some(rule.map_or(usual, |rule| rule.joint))
    }

    /// The measured algorithm for an operation through the mesh.
    pub(crate) fn algorithm(&self, operation: &Operation) -> AlgorithmChoice {
        self.rule(operation).map_or(AlgorithmChoice::Auto, |rule| rule.algorithm)
    }

    /// Leaders per host for an operation, and sub-partitions of each one's share: for allreduces in
    /// the mesh.
    pub(crate) fn partition(&self, operation: &Operation) -> (u32, u32) {
        if operation.collective != Collective::Allreduce
            || (self.leaders_max <= 1 && self.sub_partitions == Some(1))
            || self.between(operation) != Some(Between::Mesh)
        {
            return (1, 1);
        }
        let rule = self.rule(operation);
        let modelled = || {
            let len_bytes = operation.len_bytes() as u64;
            let job = Job { processes: self.ranks, hosts: self.hosts, len_bytes };
            self.costs.map(|costs| costs.best_design(job, SUB_PARTITIONS_MAX))
        };
        let design = match rule {
            Some(rule) => {
                Some(Design { leaders: rule.leaders, sub_partitions: rule.sub_partitions })
            }
            None => modelled(),
        };
        let leaders = self.leaders.or(design.map(|design| design.leaders)).unwrap_or(1);
        let parts = self.sub_partitions.or(design.map(|design| design.sub_partitions)).unwrap_or(1);
        // A piece that is empty would be nobody's.
        let elements = operation.elements.min(1 << 20) as u32;
        let leaders = leaders.min(self.leaders_max).clamp(1, elements.max(1));
        (leaders, parts.clamp(1, (elements / leaders).max(1)))
    }

    fn rule(&self, operation: &Operation) -> Option<&Measurement> {
        if self.rules.is_empty() {
            return None;
        }
        let (kind, len_bytes) = (operation.kind(), operation.len_bytes() as u64);
        rule_for(&self.rules, kind, len_bytes)
    }
}

/// Of rules ordered by length, the last one that is not longer, else the first.
fn rule_for(rules: &[Measurement], kind: Kind, len_bytes: u64) -> Option<&Measurement> {
    let of_kind = || rules.iter().filter(|rule| rule.collective == kind);
    of_kind().rfind(|rule| rule.len_bytes <= len_bytes).or_else(|| of_kind().next())
}

#[cfg(test)]
mod tests {
    use tributary_wire::{Datatype, Operator};

    use super::*;

    fn rule(len_bytes: u64, joint: Joint, leaders: u32) -> Measurement {
        Measurement {
            collective: Kind::Allreduce,
            hosts: 2,
            ranks: 8,
            len_bytes,
            joint,
            algorithm: AlgorithmChoice::Ring,
            leaders,
            sub_partitions: 1,
            time_us: 1.0,
        }
    }

    fn allreduce(elements: u64) -> Operation {
        Operation {
            collective: Collective::Allreduce,
            datatype: Datatype::F32,
            operator: Operator::Sum,
            elements,
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
        }
    }

    #[test]
    fn rules_decide_by_length_and_the_usual_way_elsewhere() {
        let ways = Ways {
            usual: Some(Between::Tree),
            rules: vec![
                rule(8, Joint::Mesh, 1),
                rule(4096, Joint::Tree, 1),
                rule(65536, Joint::Mesh, 4),
            ],
            leaders_max: 8,
            hosts: 2,
            ranks: 8,
            ..Ways::default()
        };
        let way = |elements| ways.way(&allreduce(elements));
        assert_eq!([way(1), way(100), way(1024)], [Way::InMesh, Way::InMesh, Way::InTree]);
        assert_eq!([way(1 << 14), ways.way(&Operation::BARRIER)], [Way::InMesh, Way::InTree]);
        let leaders = |elements| ways.partition(&allreduce(elements)).0;
        assert_eq!([1, 1024, 1 << 14].map(leaders), [1, 1, 4]);
        assert_eq!(ways.algorithm(&allreduce(1)), AlgorithmChoice::Ring);
        assert_eq!(Ways::default().way(&allreduce(1)), Way::InNode);
    }

    #[test]
    fn leaders_are_what_the_user_said_as_far_as_there_are_any() {
        let ways = Ways {
            usual: Some(Between::Mesh),
            leaders: Some(4),
            sub_partitions: Some(8),
            leaders_max: 3,
            hosts: 2,
            ranks: 8,
            ..Ways::default()
        };
        let partition = |elements| ways.partition(&allreduce(elements));
        assert_eq!([1, 2, 100].map(partition), [(1, 1), (2, 1), (3, 8)]);
        assert_eq!(ways.partition(&Operation::BARRIER), (1, 1));
    }
}
