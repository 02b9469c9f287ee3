//! What was measured, reduced to one rule for each collective and length: the fastest.

use serde::{Deserialize, Serialize};
use tributary_algorithms::CollectiveKind;
use tributary_tuning::{Measurement, MessageCarrier, Method};

/// Rules for communicators of one size, in the order of lengths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Table(Vec<Measurement>);

impl Table {
    /// The fastest measurement for every collective and measured length, of the nearest number of hosts
    /// and ranks.
    pub(crate) fn fastest<'a>(
        measurements: impl IntoIterator<Item = &'a Measurement>,
        hosts: u32,
        ranks: u32,
    ) -> Self {
        let measurements: Vec<&Measurement> =
            measurements.into_iter().filter(|row| row.hosts > 1).collect();
        let mut rules = Vec::new();
        for kind in CollectiveKind::ALL {
            rules.extend(fastest_of(kind, &measurements, hosts, ranks));
        }
        rules.sort_by_key(|rule| (rule.len_bytes, rule.collective));
        Self(rules)
    }

    /// The rule for an operation: the longest that is not longer, else the first.
    pub(crate) fn rule(&self, kind: CollectiveKind, len_bytes: u64) -> Option<&Measurement> {
        let of_kind = || self.0.iter().filter(|rule| rule.collective == kind);
        of_kind().rfind(|rule| rule.len_bytes <= len_bytes).or_else(|| of_kind().next())
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether some rule takes this method.
    pub(crate) fn takes(&self, method: Method) -> bool {
        self.0.iter().any(|rule| rule.method == method)
    }

    /// Whether some rule takes replicated groups.
    pub(crate) fn takes_datagrams(&self) -> bool {
        self.0.iter().any(|rule| rule.carrier == MessageCarrier::Datagrams)
    }

    /// Most leaders of a host in any rule.
    pub(crate) fn leaders_max(&self) -> Option<u32> {
        self.0.iter().map(|rule| rule.leaders).max()
    }
}

/// The fastest row for each length of one collective, among those of the nearest communicator.
fn fastest_of(
    kind: CollectiveKind,
    measurements: &[&Measurement],
    hosts: u32,
    ranks: u32,
) -> Vec<Measurement> {
    let of_kind = || measurements.iter().filter(|row| row.collective == kind);
    let distance = |row: &Measurement| {
        octaves(row.hosts.into(), hosts.into()) + octaves(row.ranks.into(), ranks.into())
    };
    let nearest = of_kind().min_by(|a, b| distance(a).total_cmp(&distance(b)));
    let Some(nearest) = nearest.map(|row| (row.hosts, row.ranks)) else { return Vec::new() };
    let near: Vec<&&Measurement> =
        of_kind().filter(|row| (row.hosts, row.ranks) == nearest).collect();
    let mut lengths: Vec<u64> = near.iter().map(|row| row.len_bytes).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let fastest = lengths.into_iter().filter_map(|len_bytes| {
        let of_length = near.iter().filter(|row| row.len_bytes == len_bytes);
        of_length.min_by(|a, b| a.time_us.total_cmp(&b.time_us))
    });
    fastest.map(|row| ***row).collect()
}

/// How many doublings two numbers are apart.
fn octaves(one: u64, other: u64) -> f64 {
    (one.max(1) as f64 / other.max(1) as f64).log2().abs()
}

#[cfg(test)]
mod tests {
    use tributary_tuning::AlgorithmChoice;

    use super::*;

    fn row(hosts: u32, ranks: u32, len_bytes: u64, method: Method, time_us: f64) -> Measurement {
        Measurement {
            collective: CollectiveKind::Allreduce,
            hosts,
            ranks,
            len_bytes,
            method,
            carrier: MessageCarrier::Links,
            algorithm: AlgorithmChoice::Auto,
            groups: None,
            leaders: 1,
            sub_partitions: 1,
            time_us,
            quartiles_us: None,
        }
    }

    #[test]
    fn the_fastest_of_the_nearest_is_taken() {
        let measured = [
            row(2, 4, 8, Method::Tree, 30.0),
            row(2, 4, 8, Method::Direct, 20.0),
            row(2, 4, 4096, Method::Tree, 40.0),
            row(2, 4, 4096, Method::Direct, 50.0),
            row(8, 8, 8, Method::Tree, 90.0),
        ];
        let best = |hosts, ranks, len_bytes| {
            let table = Table::fastest(&measured, hosts, ranks);
            table.rule(CollectiveKind::Allreduce, len_bytes).unwrap().time_us
        };
        assert_eq!([best(2, 4, 8), best(2, 4, 4095), best(2, 4, 1 << 20)], [20.0, 20.0, 40.0]);
        assert_eq!([best(2, 4, 1), best(3, 5, 8), best(9, 9, 4096)], [20.0, 20.0, 90.0]);
        let table = Table::fastest(&measured, 2, 4);
        assert_eq!(table.rule(CollectiveKind::Barrier, 0), None);
        let times: Vec<f64> = table.0.iter().map(|rule| rule.time_us).collect();
        assert_eq!(times, [20.0, 40.0]);
    }
}
