//! The groups of one host, by level of a plan.

use std::sync::Arc;

use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Action, Collective, Division, Schedule};
use tributary_replicated::MEMBERS_MAX;

/// Why the hosts of a plan are no replicated groups. All hosts come to the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGroups {
    /// Where groups of a level differ in size, a host stands in for those that another lacks: it sends to hosts that it does
    /// not hear. Links carry that.
    #[error("the groups of level {level} differ in size")]
    Uneven {
        /// The level, from the hosts on.
        level: usize,
    },
    /// A group is larger than the machine's.
    #[error(
        "the groups of level {level} have {members} members; a replicated group has 2 to {MEMBERS_MAX}"
    )]
    Members {
        /// The level, from the hosts on.
        level: usize,
        /// How many its groups have.
        members: u32,
    },
    /// One host alone has no group.
    #[error("a plan without levels has no groups")]
    Alone,
}

/// The hosts of each group that `host` belongs to, from the first level on, in child order: those that its schedule
/// exchanges with, and itself.
pub(super) fn groups(plan: &Plan, host: u32) -> Result<Vec<Vec<u32>>, NoGroups> {
    if plan.levels() == 0 {
        return Err(NoGroups::Alone);
    }
    for level in 0..plan.levels() {
        let members = plan.members_max(level);
        if plan.group_sizes(level).any(|size| size != members) {
            return Err(NoGroups::Uneven { level });
        }
        if members > u32::from(MEMBERS_MAX) {
            return Err(NoGroups::Members { level, members });
        }
    }
    let plan = Arc::new(plan.clone());
    let schedule = Schedule::over_levels(&plan, Division::Whole, Collective::Barrier, 0, host);
    let mut groups = vec![vec![host]; plan.levels()];
    for step in schedule.expect("a barrier goes over whole vectors") {
        if let Action::Receive { from, .. } = step.action {
            groups[step.round as usize].push(from);
        }
    }
    groups.iter_mut().for_each(|hosts| hosts.sort_unstable());
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::Radices;

    use super::*;

    fn even(hosts: u32, radices: &[u32]) -> Plan {
        Plan::even(hosts, Radices::new(radices).expect("radices")).expect("a plan")
    }

    #[test]
    fn a_host_meets_those_at_its_place_in_the_groups_below() {
        assert_eq!(groups(&even(3, &[3]), 1), Ok(vec![vec![0, 1, 2]]));
        assert_eq!(groups(&even(16, &[4, 4]), 6), Ok(vec![vec![4, 5, 6, 7], vec![2, 6, 10, 14]]));
        let levels = groups(&even(12, &[2, 3, 2]), 7).expect("even groups");
        assert_eq!(levels, [vec![6, 7], vec![7, 9, 11], vec![1, 7]]);
    }

    #[test]
    fn groups_that_a_machine_does_not_serve_are_refused_at_every_host() {
        for host in 0..5 {
            assert_eq!(groups(&even(5, &[3, 2]), host), Err(NoGroups::Uneven { level: 0 }));
        }
        let large = NoGroups::Members { level: 0, members: 65 };
        assert_eq!(groups(&even(65, &[65]), 9), Err(large));
        assert_eq!(groups(&Plan::new(1, &[]).expect("a plan"), 0), Err(NoGroups::Alone));
    }
}
