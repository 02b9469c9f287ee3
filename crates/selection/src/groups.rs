//! The levels of replicated groups.

use std::sync::Arc;

use tributary_algorithms::network::NetworkPrices;
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Carrier, Collective, Division, GROUP_MEMBERS_MAX, Radices};

/// The length that levels are chosen for: short operations are most of those that groups carry.
pub(super) const SHORT_BYTES: u64 = 8;

/// The levels of least predicted time; none for a single host. Where hosts are
/// of one kernel, a sender does all that brings a datagram to its receiver, so the fewest datagrams take the least time: measured
/// with a core for each host, docs/evidence/replicated-groups.md.
pub(super) fn fastest_radices(hosts: u32, prices: Option<&NetworkPrices>) -> Option<Radices> {
    let choices = Plan::divisions(hosts, GROUP_MEMBERS_MAX).into_iter();
    let Some(prices) = prices else {
        return choices.min_by_key(|radices| datagrams(hosts, *radices));
    };
    let timed = choices
        .filter_map(|radices| Some((radices, time_ns(hosts, radices, prices, SHORT_BYTES)?)));
    timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(radices, _)| radices)
}

/// How many datagrams go out one after the other in an operation: those of the host with the most, at each level.
fn datagrams(hosts: u32, radices: Radices) -> usize {
    let Some(plan) = Plan::in_groups(hosts, radices) else { return usize::MAX };
    let mut most = vec![0; plan.levels()];
    for host in 0..hosts {
        for (most, groups) in most.iter_mut().zip(plan.groups_of(host)) {
            *most = groups.iter().map(|group| group.hosts.len() - 1).sum::<usize>().max(*most);
        }
    }
    most.into_iter().sum()
}

/// What an allreduce of `len_bytes` takes by groups of these radices; none if they have no room for the hosts, or their datagrams
/// are not that long. A barrier is one without bytes.
pub(super) fn time_ns(
    hosts: u32,
    radices: Radices,
    prices: &NetworkPrices,
    len_bytes: u64,
) -> Option<f64> {
    let plan = Arc::new(Plan::even(hosts, radices)?);
    let (carrier, sum) = (Carrier::Copies(prices.datagrams), Collective::Allreduce);
    prices.links.levels_time_ns(&plan, Division::Whole, carrier, sum, len_bytes)
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::network::Network;

    use super::*;

    #[test]
    fn hosts_of_one_kernel_send_the_fewest_datagrams() {
        let radices = |hosts| fastest_radices(hosts, None).map(|it| it.iter().collect::<Vec<_>>());
        assert_eq!(radices(8), Some(vec![2, 2, 2]));
        assert_eq!(radices(12), Some(vec![3, 2, 2]));
        assert_eq!(radices(9), Some(vec![3, 3]));
        assert!(radices(37).is_some());
    }

    #[test]
    fn groups_have_room_and_few_hosts_are_one() {
        let radices = |hosts| {
            fastest_radices(hosts, Some(&Network::Ethernet25.into()))
                .map(|it| it.iter().collect::<Vec<_>>())
        };
        assert_eq!(radices(4), Some(vec![4]));
        assert_eq!(radices(7), Some(vec![7]));
        assert_eq!(radices(37), Some(vec![7, 6]));
        for hosts in 2..=64 {
            let room: u32 = radices(hosts).expect("groups").iter().product();
            assert!((hosts..hosts * 3 / 2).contains(&room), "{hosts} hosts");
        }
    }
}
