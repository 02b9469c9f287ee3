//! Scripts for `ip`, `tc` and `nft` that make each part of a plan.
//!
//! Only makes the text; `tools` runs it. Effects on packets:
//!
//! - a rate is a token bucket filter (`tc-tbf(8)`) for packets that leave either interface of a link;
//! - a loss drops IP packets at random as they come in at an interface (nftables, family netdev,
//!   hook ingress), so each direction of each link loses independently. ARP is exempt: a lost ARP
//!   request costs a second, which does not happen on a running cluster;
//! - links without multicast drop packets to multicast addresses at the same place;
//! - with single packets, the sender does no segmentation offload (`gso_max_segs` of ip-link(8)).

use std::fmt::Write as _;

use crate::network::{LinkOptions, Rate};
use crate::plan::{BRIDGE, Member, NETWORK, PREFIX_BITS, Plan};

/// Size of a token bucket as time at the full rate, in microseconds.
const BURST_US: u64 = 1_000;

/// Minimum size of a token bucket: packets before segmentation have up to 64 KiB.
const BURST_MIN_BYTES: u64 = 128 << 10;

/// How long a packet may queue before the link drops it, in milliseconds.
const QUEUE_MS: u64 = 20;

/// Lines for `ip -batch` that make every link, with its ends in the members' namespaces.
///
/// `process_of` gives each member's process number in the caller's process namespace.
pub(crate) fn cables(plan: &Plan, process_of: impl Fn(&str) -> i32) -> String {
    let mut text = String::new();
    for cable in plan.cables() {
        // Writing into a string can't fail.
        let _ = writeln!(
            text,
            "link add name {} netns {} type veth peer name {} netns {}",
            cable.below.1,
            process_of(&cable.below.0),
            cable.above.1,
            process_of(&cable.above.0),
        );
    }
    text
}

/// Lines for `ip -batch` that set up a switch, in its own namespace.
pub(crate) fn switch(interfaces: &[String]) -> String {
    let mut text = format!(
        "link set dev lo up\nlink add name {BRIDGE} type bridge\nlink set dev {BRIDGE} up\n"
    );
    for interface in interfaces {
        let _ = writeln!(text, "link set dev {interface} master {BRIDGE} up");
    }
    text
}

/// Lines for `ip -batch` that give a member its address, if it has one, in its own namespace.
pub(crate) fn addresses(links: &LinkOptions, member: &Member) -> String {
    let Some(address) = member.address else { return String::new() };
    let interface = member.addressed_interface();
    let mut text = format!(
        "link set dev lo up\n\
         address add {address}/{PREFIX_BITS} broadcast + dev {interface}\n\
         link set dev {interface} up\n\
         route add 224.0.0.0/4 dev {interface}\n"
    );
    if links.has_single_packets {
        let _ = writeln!(text, "link set dev {interface} gso_max_segs 1");
    }
    if let Some(rto_min_ms) = links.tcp_rto_min_ms {
        let _ = writeln!(
            text,
            "route replace {NETWORK}/{PREFIX_BITS} dev {interface} proto kernel scope link \
             src {address} rto_min {rto_min_ms}ms",
        );
    }
    text
}

/// Lines for `tc -batch` that limit the rate of packets leaving the interfaces; empty without a
/// rate.
pub(crate) fn rates(links: &LinkOptions, interfaces: &[String]) -> String {
    let Some(rate) = links.rate else { return String::new() };
    let burst = burst_bytes(rate);
    let mut text = String::new();
    for interface in interfaces {
        let _ = writeln!(
            text,
            "qdisc add dev {interface} root tbf rate {}bit burst {burst}b latency {QUEUE_MS}ms",
            rate.bits_per_s(),
        );
    }
    text
}

fn burst_bytes(rate: Rate) -> u64 {
    (rate.bits_per_s() / 8 * BURST_US / 1_000_000).max(BURST_MIN_BYTES)
}

/// Input for `nft -f` that drops packets arriving at the interfaces; empty if nothing is to be
/// dropped.
pub(crate) fn drops(links: &LinkOptions, interfaces: &[String]) -> String {
    let mut rules = String::new();
    if links.blocks_multicast {
        rules.push_str("    ip daddr 224.0.0.0/4 counter drop\n");
    }
    if !links.loss.is_none() {
        let _ = writeln!(
            rules,
            "    meta protocol ip numgen random mod 1000000 < {} counter drop",
            links.loss.parts_per_million(),
        );
    }
    if rules.is_empty() {
        return rules;
    }
    let mut text = "table netdev lab {\n".to_owned();
    for interface in interfaces {
        let _ = writeln!(
            text,
            "  chain {interface} {{\n    \
             type filter hook ingress device \"{interface}\" priority 0; policy accept;\n\
             {rules}  }}",
        );
    }
    text.push_str("}\n");
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::{NodePlacement, Shape};

    #[test]
    fn links_are_made_in_the_members_namespaces() {
        let shape = Shape::new(2, 1, NodePlacement::Spine).unwrap();
        let plan = Plan::new(shape, LinkOptions::default());
        let place =
            |name: &str| plan.members.iter().position(|member| member.name == name).unwrap() as i32;
        assert_eq!(
            cables(&plan, place),
            "link add name spine netns 1 type veth peer name leaf0 netns 0\n\
             link add name spine netns 2 type veth peer name leaf1 netns 0\n\
             link add name eth0 netns 3 type veth peer name manager netns 0\n\
             link add name eth0 netns 4 type veth peer name spine-an netns 0\n\
             link add name eth0 netns 5 type veth peer name h0 netns 1\n\
             link add name eth0 netns 6 type veth peer name h1 netns 2\n"
        );
    }

    #[test]
    fn without_rate_and_losses_there_is_nothing_to_run() {
        let interfaces = ["eth0".to_owned()];
        assert_eq!(rates(&LinkOptions::default(), &interfaces), "");
        assert_eq!(drops(&LinkOptions::default(), &interfaces), "");
    }

    #[test]
    fn rates_and_losses_name_every_interface() {
        let links = LinkOptions {
            rate: Some("10gbit".parse().unwrap()),
            loss: "0.5".parse().unwrap(),
            ..LinkOptions::default()
        };
        let interfaces = ["h0".to_owned(), "h1".to_owned()];
        assert_eq!(
            rates(&links, &interfaces),
            "qdisc add dev h0 root tbf rate 10000000000bit burst 1250000b latency 20ms\n\
             qdisc add dev h1 root tbf rate 10000000000bit burst 1250000b latency 20ms\n"
        );
        let text = drops(&links, &interfaces);
        assert_eq!(text.matches("numgen random mod 1000000 < 5000 counter drop").count(), 2);
        assert!(text.contains("device \"h1\""));
    }

    #[test]
    fn links_without_multicast_drop_it_and_nothing_else() {
        let links = LinkOptions { blocks_multicast: true, ..LinkOptions::default() };
        assert_eq!(
            drops(&links, &["eth0".to_owned()]),
            "table netdev lab {\n  chain eth0 {\n    type filter hook ingress device \"eth0\" \
             priority 0; policy accept;\n    ip daddr 224.0.0.0/4 counter drop\n  }\n}\n"
        );
    }
}
