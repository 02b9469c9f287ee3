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
use crate::switch::UNREAD_MAX;

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

/// Lines for `ip -batch` that give a member its address, if it has one, in its own namespace, and tell it the others'.
pub(crate) fn addresses(plan: &Plan, member: &Member) -> String {
    let (Some(address), Some(hardware)) = (member.address, member.hardware_address()) else {
        return String::new();
    };
    let links = &plan.links;
    let interface = plan.addressed_interface(member);
    let mut text = format!(
        "link set dev lo up\n\
         link set dev {interface} address {}\n\
         address add {address}/{PREFIX_BITS} broadcast + dev {interface}\n\
         link set dev {interface} up\n\
         route add 224.0.0.0/4 dev {interface}\n",
        colons(hardware)
    );
    text.push_str(&neighbors(plan, member));
    if links.has_delay() {
        let _ = writeln!(text, "link set dev {interface} txqueuelen {UNREAD_MAX}");
    }
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

/// Lines for `ip -batch` that enter all other members into a member's table of neighbours, for good. All networks of a
/// machine share that table, and it has 1,024 entries (`gc_thresh3` of arp(7)), which 33 members that all speak with each
/// other would overflow; the kernel does not count permanent ones.
fn neighbors(plan: &Plan, member: &Member) -> String {
    let interface = plan.addressed_interface(member);
    let mut text = String::new();
    for other in plan.speakers().filter(|other| other.name != member.name) {
        if let (Some(address), Some(hardware)) = (other.address, other.hardware_address()) {
            let _ = writeln!(
                text,
                "neighbour replace {address} lladdr {} dev {interface} nud permanent",
                colons(hardware)
            );
        }
    }
    text
}

fn colons(hardware: [u8; 6]) -> String {
    hardware.map(|byte| format!("{byte:02x}")).join(":")
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
    fn members_know_every_other_for_good() {
        let plan =
            Plan::new(Shape::new(2, 2, NodePlacement::Spine).unwrap(), LinkOptions::default());
        let text = addresses(&plan, plan.member("h0").unwrap());
        assert!(text.contains("link set dev eth0 address 02:54:0a:4d:02:01\n"), "{text}");
        assert_eq!(
            neighbors(&plan, plan.member("h0").unwrap()),
            "neighbour replace 10.77.0.1 lladdr 02:54:0a:4d:00:01 dev eth0 nud permanent\n\
             neighbour replace 10.77.1.1 lladdr 02:54:0a:4d:01:01 dev eth0 nud permanent\n\
             neighbour replace 10.77.2.2 lladdr 02:54:0a:4d:02:02 dev eth0 nud permanent\n"
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
