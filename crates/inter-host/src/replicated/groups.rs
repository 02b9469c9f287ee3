//! The groups of one host, by level of a plan.

use tributary_algorithms::plan::{HostGroup, Plan};
use tributary_replicated::MEMBERS_MAX;

/// Why the hosts of a plan are no replicated groups. All hosts come to the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NoGroups {
    /// A group is larger than the machine's, or a host has nobody to meet at a level.
    #[error(
        "a group of level {level} has {members} members; a replicated group has 2 to {MEMBERS_MAX}"
    )]
    Members {
        /// The level, from the hosts on.
        level: usize,
        /// How many the group has.
        members: u32,
    },
    /// One host alone has no group.
    #[error("a plan without levels has no groups")]
    Alone,
}

/// The groups that `host` belongs to at each level, from the first on: its own, then those in which it stands in.
pub(super) fn groups(plan: &Plan, host: u32) -> Result<Vec<Vec<HostGroup>>, NoGroups> {
    if plan.levels() == 0 {
        return Err(NoGroups::Alone);
    }
    for level in 0..plan.levels() {
        let is_unfit = |members: &u32| !(2..=MEMBERS_MAX.into()).contains(members);
        if let Some(members) = plan.group_sizes(level).find(is_unfit) {
            return Err(NoGroups::Members { level, members });
        }
    }
    Ok(plan.groups_of(host))
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
    fn they_are_those_that_its_schedule_exchanges_with() {
        for plan in [even(24, &[4, 3, 2]), even(17, &[5, 4]), even(29, &[4, 4, 2])] {
            exchanges_are_those_of_the_schedule(&Arc::new(plan));
        }
    }

    /// A host receives from the members of its own group at each level.
    fn exchanges_are_those_of_the_schedule(plan: &Arc<Plan>) {
        for host in 0..plan.hosts() {
            let schedule =
                Schedule::over_levels(plan, Division::Whole, Collective::Barrier, 0, host);
            let mut exchanged = vec![vec![host]; plan.levels()];
            for step in schedule.expect("a barrier goes over whole vectors") {
                if let Action::Receive { from, .. } = step.action {
                    exchanged[step.round as usize].push(from);
                }
            }
            exchanged.iter_mut().for_each(|hosts| hosts.sort_unstable());
            let levels = groups(plan, host).expect("groups").into_iter();
            let own: Vec<_> = levels.map(|mut groups| groups.swap_remove(0).hosts).collect();
            assert_eq!(own, exchanged, "host {host}");
        }
    }

    #[test]
    fn groups_that_a_machine_does_not_serve_are_refused_at_every_host() {
        for host in 0..3 {
            let alone = NoGroups::Members { level: 0, members: 1 };
            assert_eq!(groups(&even(3, &[2, 2]), host), Err(alone));
        }
        let large = NoGroups::Members { level: 0, members: 65 };
        assert_eq!(groups(&even(65, &[65]), 9), Err(large));
        assert_eq!(groups(&Plan::new(1, &[]).expect("a plan"), 0), Err(NoGroups::Alone));
    }
}
