//! The groups of one host, by level of a plan.

use tributary_algorithms::plan::Plan;
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

/// The hosts of each group that `host` belongs to, from the first level on, in child order.
pub(super) fn groups(plan: &Plan, host: u32) -> Result<Vec<Vec<u32>>, NoGroups> {
    if plan.levels() == 0 {
        return Err(NoGroups::Alone);
    }
    if let Some(level) = plan.uneven_level() {
        return Err(NoGroups::Uneven { level });
    }
    let too_large = |level: &usize| plan.members_max(*level) > u32::from(MEMBERS_MAX);
    if let Some(level) = (0..plan.levels()).find(too_large) {
        return Err(NoGroups::Members { level, members: plan.members_max(level) });
    }
    Ok(plan.groups_of(host).expect("the groups of each level are equal"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tributary_algorithms::{Action, Collective, Division, Radices, Schedule};

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
    fn they_are_those_that_its_schedule_exchanges_with() {
        let plan = Arc::new(even(24, &[4, 3, 2]));
        for host in 0..24 {
            let schedule =
                Schedule::over_levels(&plan, Division::Whole, Collective::Barrier, 0, host);
            let mut exchanged = vec![vec![host]; plan.levels()];
            for step in schedule.expect("a barrier goes over whole vectors") {
                if let Action::Receive { from, .. } = step.action {
                    exchanged[step.round as usize].push(from);
                }
            }
            exchanged.iter_mut().for_each(|hosts| hosts.sort_unstable());
            assert_eq!(groups(&plan, host), Ok(exchanged));
        }
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
