//! The preset of a site: what `tributary tune` has found, as the simulator reads it.

use tributary_algorithms::network::{Network, NetworkPrices};
use tributary_sim::preset::{self, Preset};
use tributary_tuning::Tuning;

/// What cables, headers and the switch's queues add to the time between two cores in `ethernet-25`, in nanoseconds.
const BETWEEN_ADAPTERS_NS: f64 = 450.0;

/// How much of the time between two cores each adapter has, at most: what it has in `ethernet-25`, and a share.
const ADAPTER_NS_MAX: f64 = 700.0;
const ADAPTER_SHARE: f64 = 0.25;

/// A preset of one switch with the hosts that were measured and one more for an aggregator, at the prices of a file.
///
/// # Errors
/// If the file has no prices, in words for people.
pub fn preset_of(tuning: &Tuning) -> Result<Preset, String> {
    let prices = tuning.prices.ok_or_else(|| {
        "it has no prices of a network: a file that `tributary tune FILE -- LAUNCHER` wrote with one rank on each host is \
         allowed"
            .to_owned()
    })?;
    let hosts = tuning.site.as_ref().map_or(0, |site| site.hosts);
    preset::read(&text(&prices, hosts)).map_err(|error| error.to_string())
}

/// The preset's text. All prices have one source.
fn text(prices: &NetworkPrices, hosts: u32) -> String {
    let NetworkPrices { links, datagrams, aggregators } = prices;
    let adapter_ns = ADAPTER_NS_MAX.min(links.wire_ns * ADAPTER_SHARE);
    let switch_ns = (links.wire_ns - 2.0 * adapter_ns - BETWEEN_ADAPTERS_NS).max(0.0);
    let constants = [
        ("access.rate", 8.0 / links.link_ns_per_byte.max(1e-6), "Gb/s"),
        ("trunk.rate", 8.0 / links.link_ns_per_byte.max(1e-6), "Gb/s"),
        ("packet.mtu", links.packet_max_bytes as f64, "B"),
        ("switch.port_to_port", switch_ns, "ns"),
        ("adapter.transmit", adapter_ns, "ns"),
        ("adapter.receive", adapter_ns, "ns"),
        ("software.frame_max", links.frame_max_bytes as f64, "B"),
        ("software.send", links.send_ns, "ns"),
        ("software.receive", links.receive_ns, "ns"),
        ("software.eager_byte", links.copy_ns_per_byte, "ns/B"),
        ("software.reduce_byte", links.reduce_ns_per_byte, "ns/B"),
        ("datagrams.further_send", datagrams.further_send_ns, "ns"),
        ("datagrams.each_receive", datagrams.each_receive_ns, "ns"),
        ("tree.request", links.send_ns, "ns"),
        ("tree.result", links.receive_ns, "ns"),
        ("aggregation.packet", aggregators.take_ns, "ns"),
        ("aggregation.byte", aggregators.take_ns_per_byte, "ns/B"),
        ("aggregation.reply", aggregators.reply_ns, "ns"),
        ("aggregation.reply_byte", aggregators.reply_ns_per_byte, "ns/B"),
        ("aggregation.latency", aggregators.latency_ns, "ns"),
        ("aggregation.payload_max", aggregators.segment_max_bytes as f64, "B"),
    ];
    let base = Network::Ethernet25.name();
    let mut text = format!(
        "name = \"site\"\nabout = \"a site that was measured\"\nbase = \"{base}\"\n\
         fabric.kind = \"fat-tree\"\nfabric.down = [{}]\nfabric.up = [1]\n",
        hosts + 1
    );
    for (key, value, unit) in constants {
        text += &format!(
            "{key} = {{ value = {value:?}, unit = \"{unit}\", source = \"tributary tune\" }}\n"
        );
    }
    text
}

#[cfg(test)]
mod tests {
    use tributary_algorithms::{Algorithm, Collective};
    use tributary_sim::fabric::Vertex;
    use tributary_sim::measure::HostRun;

    use super::*;

    /// What the simulator finds at prices is what the model predicts at them.
    #[test]
    fn the_simulator_and_the_model_mean_the_same_prices() {
        let mut slow = NetworkPrices::from(Network::Cloud);
        slow.links.send_ns = 9000.0;
        slow.links.receive_ns = 9000.0;
        for prices in [Network::Ethernet25.into(), Network::Ethernet100.into(), slow] {
            let preset = preset::read(&text(&prices, 8)).unwrap();
            let places: Vec<Vertex> = (0..8).map(Vertex).collect();
            for (algorithm, len_bytes) in [
                (Algorithm::RecursiveDoubling, 8),
                (Algorithm::RecursiveDoubling, 4096),
                (Algorithm::Rabenseifner, 65_536),
                (Algorithm::Linear, 8),
            ] {
                let mut run = HostRun::set_up(&preset, &places, algorithm, None).unwrap();
                let simulated_us = run.allreduce(len_bytes, 1).unwrap().summary().avg;
                let predicted_ns =
                    prices.links.time_ns(algorithm, Collective::Allreduce, 8, len_bytes as u64);
                let ratio = simulated_us * 1e3 / predicted_ns.unwrap();
                assert!((0.85..1.18).contains(&ratio), "{algorithm}, {len_bytes} B: {ratio}");
            }
        }
    }

    #[test]
    fn a_file_without_prices_is_refused() {
        let error = preset_of(&Tuning::default()).unwrap_err();
        assert!(error.contains("one rank on each host"), "{error}");
    }
}
