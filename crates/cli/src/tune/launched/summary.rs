//! What was measured, in 80 columns.

use std::io::{self, Write};
use std::path::Path;

use tributary_algorithms::network::NetworkPrices;
use tributary_measuring::paths;
use tributary_tuning::{MISS_MAX, Measurement, Site, Tuning};

use tributary_views::tables;

/// Writes the fastest paths, the prices, and how to use the file.
pub(super) fn write(tuning: &Tuning, file: &Path) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let site = tuning.site.clone().unwrap_or_default();
    writeln!(out, "# {} ranks on {} hosts, {}", site.ranks, site.hosts, site.mpi)?;
    for adapter in &site.adapters {
        writeln!(out, "# {adapter}")?;
    }
    writeln!(out, "# medians of {} starts for each path, in us\n", site.rounds)?;
    writeln!(out, "{}\n", fastest(&tuning.measurements))?;
    writeln!(out, "{}\n", about_prices(tuning, &site))?;
    let (count, file) = (tuning.measurements.len(), file.display());
    writeln!(out, "{count} measured times. Programs use them with\nTRIBUTARY_TUNING={file}")
}

/// The fastest path for each collective and length, and the next.
fn fastest(measurements: &[Measurement]) -> String {
    let mut table = tables::plain(["collective", "bytes", "fastest", "us", "next", "us"]);
    let mut cases: Vec<_> =
        measurements.iter().map(|row| (row.collective, row.len_bytes)).collect();
    cases.sort_unstable();
    cases.dedup();
    for (collective, len_bytes) in cases {
        let is_it = |row: &&Measurement| (row.collective, row.len_bytes) == (collective, len_bytes);
        let mut rows: Vec<&Measurement> = measurements.iter().filter(is_it).collect();
        rows.sort_by(|one, other| one.time_us.total_cmp(&other.time_us));
        let name = |row: &&Measurement| {
            paths::name(row.method, row.carrier, row.algorithm, row.groups, row.leaders)
        };
        let us = |row: &&Measurement| format!("{:.1}", row.time_us);
        let next = rows.get(1);
        table.add_row([
            collective.name().to_owned(),
            len_bytes.to_string(),
            name(&rows[0]),
            us(&rows[0]),
            next.map(name).unwrap_or_default(),
            next.map(us).unwrap_or_default(),
        ]);
    }
    for numbers in [1..2, 3..4, 5..6] {
        tables::right(&mut table, numbers);
    }
    tables::text(&table)
}

fn about_prices(tuning: &Tuning, site: &Site) -> String {
    let percent = |share: f64| (share * 100.0).round();
    match (&tuning.prices, site.prices_miss) {
        (Some(NetworkPrices { links, datagrams, aggregators }), Some([mean, worst])) => format!(
            "A message takes {:.2} us at each end and {:.2} us between,\na byte {:.3} ns on a link, a message at an \
             aggregator {:.2} us.\nA further datagram takes {:.2} us to send and {:.2} us to receive.\nAt these prices the model misses the times by \
             {}% in the mean, {}% at most.",
            links.send_ns / 1e3,
            links.wire_ns / 1e3,
            links.link_ns_per_byte,
            aggregators.take_ns / 1e3,
            datagrams.further_send_ns / 1e3,
            datagrams.each_receive_ns / 1e3,
            percent(mean),
            percent(worst),
        ),
        (None, Some([mean, _])) => format!(
            "The times have no prices: the model misses them by {}% in the mean, where {}% is\nallowed. Are there \
             fewer cores than ranks, or other programs on the hosts?",
            percent(mean),
            percent(MISS_MAX),
        ),
        _ => "No prices: they need one rank on each host, and times of allreduces.".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::network::Network;
    use tributary_client::CollectiveKind;
    use tributary_tuning::{AlgorithmChoice, MessageCarrier, Method};

    use super::*;

    fn row(len_bytes: u64, algorithm: AlgorithmChoice, time_us: f64) -> Measurement {
        Measurement {
            collective: CollectiveKind::Allreduce,
            hosts: 128,
            ranks: 1024,
            len_bytes,
            method: Method::Direct,
            carrier: MessageCarrier::Links,
            algorithm,
            groups: None,
            leaders: 1,
            sub_partitions: 1,
            time_us,
            quartiles_us: None,
        }
    }

    #[test]
    fn the_fastest_stands_first_and_lines_have_80_columns() {
        let rows = [
            row(16_777_216, AlgorithmChoice::Rabenseifner, 12_345.6),
            row(16_777_216, AlgorithmChoice::Linear, 99_999.9),
            row(8, AlgorithmChoice::Linear, 9.9),
        ];
        let table = fastest(&rows);
        let lines: Vec<&str> = table.lines().collect();
        assert!(lines[1].contains("linear") && !lines[1].contains("rabenseifner"), "{table}");
        assert!(lines[2].find("rabenseifner") < lines[2].find("linear"), "{table}");
        let site = Site { prices_miss: Some([0.0417, 0.123]), ..Site::default() };
        let priced = Tuning { prices: Some(Network::Cloud.into()), ..Tuning::default() };
        let text = about_prices(&priced, &site);
        assert!(text.contains("4% in the mean, 12% at most"), "{text}");
        let without = about_prices(&Tuning::default(), &site);
        for line in table.lines().chain(text.lines()).chain(without.lines()) {
            assert!(line.len() <= 80, "{line}");
        }
    }
}
