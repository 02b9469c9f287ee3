//! The levels of replicated groups.

use tributary_algorithms::network::{DATAGRAMS, Network};
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Carrier, Collective, Division, Radices};

/// The most members of a group: each takes a datagram of every other.
const MEMBERS_MAX: u32 = 16;

/// The length that levels are chosen for: short operations are most of those that groups carry.
const SHORT_BYTES: u64 = 8;

/// The levels of least predicted time, of all whose groups are equal; none if there are none, as among 17 hosts. Where hosts are
/// of one kernel, a sender does all that brings a datagram to its receiver, so the fewest datagrams take the least time: measured
/// with a core for each host, docs/evidence/replicated-groups.md.
pub(super) fn fastest_radices(hosts: u32, network: Option<Network>) -> Option<Radices> {
    let datagrams = |radices: &Vec<u32>| radices.iter().map(|members| members - 1).sum::<u32>();
    let choices = products(hosts, MEMBERS_MAX);
    let Some(network) = network else {
        return Radices::new(&choices.into_iter().min_by_key(datagrams)?);
    };
    let (carrier, prices) = (Carrier::Copies(DATAGRAMS), network.prices());
    let timed = choices.into_iter().filter_map(|radices| {
        let radices = Radices::new(&radices)?;
        let plan = Plan::even(hosts, radices)?;
        let (whole, sum) = (Division::Whole, Collective::Allreduce);
        let time_ns = prices.levels_time_ns(&plan.into(), whole, carrier, sum, SHORT_BYTES)?;
        Some((radices, time_ns))
    });
    timed.min_by(|(_, one), (_, other)| one.total_cmp(other)).map(|(radices, _)| radices)
}

/// Every list of factors from 2 to `factor_max`, the largest first, whose product is `number`.
fn products(number: u32, factor_max: u32) -> Vec<Vec<u32>> {
    if number == 1 {
        return vec![Vec::new()];
    }
    let factors =
        (2..=factor_max.min(number)).rev().filter(|factor| number.is_multiple_of(*factor));
    let with = |factor: u32| {
        let rests = products(number / factor, factor);
        rests.into_iter().map(move |rest| [vec![factor], rest].concat())
    };
    factors.flat_map(with).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_product_is_found_once() {
        assert_eq!(products(12, 16), [vec![12], vec![6, 2], vec![4, 3], vec![3, 2, 2]]);
        assert_eq!(products(8, 4), [vec![4, 2], vec![2, 2, 2]]);
        assert_eq!(products(17, 16), [[0; 0]; 0]);
    }

    #[test]
    fn hosts_of_one_kernel_send_the_fewest_datagrams() {
        let radices = |hosts| fastest_radices(hosts, None).map(|it| it.iter().collect::<Vec<_>>());
        assert_eq!(radices(8), Some(vec![2, 2, 2]));
        assert_eq!(radices(12), Some(vec![3, 2, 2]));
        assert_eq!(radices(34), None);
    }

    #[test]
    fn groups_are_equal_and_few_hosts_are_one() {
        let radices = |hosts| {
            fastest_radices(hosts, Some(Network::Ethernet25))
                .map(|it| it.iter().collect::<Vec<_>>())
        };
        assert_eq!(radices(4), Some(vec![4]));
        assert_eq!(radices(7), Some(vec![7]));
        assert_eq!(radices(17), None);
        for hosts in 2..=64 {
            let product = radices(hosts).map(|radices| radices.iter().product());
            assert!(product.is_none_or(|product: u32| product == hosts), "{hosts} hosts");
        }
    }
}
