//! The levels of replicated groups.

use std::sync::Arc;

use tributary_algorithms::network::NetworkPrices;
use tributary_algorithms::{Carrier, Collective, Division, GROUP_MEMBERS_MAX, Leaves, Radices};

/// The length that levels are chosen for: short operations are most of those that groups carry.
pub(super) const SHORT_BYTES: u64 = 8;

/// How much longer a datagram is under way to another leaf: through two switches more, as in the simulator's presets.
const ACROSS_NS: f64 = 1_200.0;

/// The levels of least predicted time; none for a single host. Where hosts are
/// of one kernel, a sender does all that brings a datagram to its receiver, so the fewest datagrams take the least time: measured
/// with a core for each host, docs/evidence/replicated-groups.md.
pub(super) fn fastest_radices(leaves: &Leaves, prices: Option<&NetworkPrices>) -> Option<Radices> {
    let choices = leaves.divisions(GROUP_MEMBERS_MAX).into_iter();
    let Some(prices) = prices else {
        return choices.min_by_key(|radices| datagrams(leaves, *radices));
    };
    let timed = choices.filter_map(|radices| {
        let levels_across = leaves.levels_across(&leaves.groups(radices)?) as f64;
        let time_ns = time_ns(leaves, radices, prices, SHORT_BYTES)?;
        Some((radices, time_ns + levels_across * ACROSS_NS))
    });
    timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(radices, _)| radices)
}

/// How many datagrams go out one after the other in an operation: those of the host with the most, at each level.
fn datagrams(leaves: &Leaves, radices: Radices) -> usize {
    let Some(plan) = leaves.groups(radices) else { return usize::MAX };
    let mut most = vec![0; plan.levels()];
    for host in 0..leaves.hosts() {
        for (most, groups) in most.iter_mut().zip(plan.groups_of(host)) {
            *most = groups.iter().map(|group| group.hosts.len() - 1).sum::<usize>().max(*most);
        }
    }
    most.into_iter().sum()
}

/// What an allreduce of `len_bytes` takes by groups of these radices; none if they have no room for the hosts, or their datagrams
/// are not that long. A barrier is one without bytes.
pub(super) fn time_ns(
    leaves: &Leaves,
    radices: Radices,
    prices: &NetworkPrices,
    len_bytes: u64,
) -> Option<f64> {
    let plan = Arc::new(leaves.plan(radices)?);
    let (carrier, sum) = (Carrier::Copies(prices.datagrams), Collective::Allreduce);
    prices.links.levels_time_ns(&plan, Division::Whole, carrier, sum, len_bytes)
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::network::Network;

    use super::*;

    #[test]
    fn hosts_of_one_kernel_send_the_fewest_datagrams() {
        let radices = |hosts| {
            fastest_radices(&Leaves::unknown(hosts), None).map(|it| it.iter().collect::<Vec<_>>())
        };
        assert_eq!(radices(8), Some(vec![2, 2, 2]));
        assert_eq!(radices(12), Some(vec![3, 2, 2]));
        assert_eq!(radices(9), Some(vec![3, 3]));
        assert!(radices(37).is_some());
    }

    #[test]
    fn groups_have_room_and_few_hosts_are_one() {
        let radices = |hosts| {
            fastest_radices(&Leaves::unknown(hosts), Some(&Network::Ethernet25.into()))
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
