//! The levels of replicated groups.

use std::sync::Arc;

use tributary_algorithms::network::NetworkPrices;
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Carrier, Collective, Division, GROUP_MEMBERS_MAX, Radices};

/// The length that levels are chosen for: short operations are most of those that groups carry.
pub(super) const SHORT_BYTES: u64 = 8;

/// The levels of least predicted time, of all whose groups are equal; none if there are none, as among 17 hosts. Where hosts are
/// of one kernel, a sender does all that brings a datagram to its receiver, so the fewest datagrams take the least time: measured
/// with a core for each host, docs/evidence/replicated-groups.md.
pub(super) fn fastest_radices(hosts: u32, prices: Option<&NetworkPrices>) -> Option<Radices> {
    let datagrams = |radices: &Radices| radices.iter().map(|members| members - 1).sum::<u32>();
    let choices = Radices::divisions(hosts, GROUP_MEMBERS_MAX).into_iter();
    let Some(prices) = prices else {
        return choices.min_by_key(datagrams);
    };
    let timed = choices
        .filter_map(|radices| Some((radices, time_ns(hosts, radices, prices, SHORT_BYTES)?)));
    timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(radices, _)| radices)
}

/// What an allreduce of `len_bytes` takes by groups of these radices; none if they do not divide the hosts, or their datagrams
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
        assert_eq!(radices(37), None);
    }

    #[test]
    fn groups_are_equal_and_few_hosts_are_one() {
        let radices = |hosts| {
            fastest_radices(hosts, Some(&Network::Ethernet25.into()))
                .map(|it| it.iter().collect::<Vec<_>>())
        };
        assert_eq!(radices(4), Some(vec![4]));
        assert_eq!(radices(7), Some(vec![7]));
        assert_eq!(radices(37), None);
        for hosts in 2..=64 {
            let product = radices(hosts).map(|radices| radices.iter().product());
            assert!(product.is_none_or(|product: u32| product == hosts), "{hosts} hosts");
        }
    }
}
