//! The plan of a lab: its members, and the links between them.
//!
//! Derived from a [`Shape`] alone, so the shape determines every name and address. Makes nothing;
//! `scripts` has the commands that make each part.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::delay::Delay;
use crate::network::{LinkOptions, NodePlacement, Shape};

/// Port of every daemon in a lab. Daemons differ by address.
pub const DAEMON_PORT: u16 = 7470;

/// The manager's `--multicast` option: 256 addresses of the block for use within a site (RFC 2365,
/// section 6.1).
pub const MULTICAST_ADDRESSES: &str = "239.255.77.0/256:7475";
/// Where each host's service of rings takes connections: a name that each network namespace has for itself.
pub const RINGS_SOCKET: &str = "@tributary-rings";

/// The network of all members.
pub const NETWORK: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 0);

/// Bits of the network's prefix.
pub const PREFIX_BITS: u8 = 16;

/// A member's own end of its link.
pub const MEMBER_INTERFACE: &str = "eth0";

/// Where an aggregator with a kernel path serves its metrics, in its own namespace.
pub const METRICS_ADDRESS: &str = "127.0.0.1:7479";

/// The bridge of a switch.
pub const BRIDGE: &str = "br0";

/// Switch at the top of a fabric with several leaves.
const SPINE: &str = "spine";

/// The manager's host.
pub const MANAGER: &str = "manager";

/// The role of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A bridge; an aggregation node's daemon, too, if it has an address.
    Switch,
    /// Runs the manager's daemon.
    Manager,
    /// Runs an aggregation node's daemon.
    Node,
    /// Runs the commands that users give.
    Host,
}

impl Role {
    /// Its name for users.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Switch => "switch",
            Self::Manager => "manager",
            Self::Node => "node",
            Self::Host => "host",
        }
    }
}

/// A member of a lab, which has its own namespaces.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its host name; unique in the lab.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Its address. Switches without an aggregation node inside have none.
    pub address: Option<Ipv4Addr>,
    /// The switch it is linked to: the spine for a leaf. The topmost switch has none.
    pub switch: Option<String>,
}

impl Member {
    /// Whether it runs an aggregation node's daemon.
    #[must_use]
    pub fn has_node(&self) -> bool {
        match self.role {
            Role::Node => true,
            Role::Switch => self.address.is_some(),
            Role::Manager | Role::Host => false,
        }
    }

    /// The hardware address of its interface, made of its address; locally administered.
    #[must_use]
    pub fn hardware_address(&self) -> Option<[u8; 6]> {
        let [a, b, c, d] = self.address?.octets();
        Some([0x02, 0x54, a, b, c, d])
    }
}

/// A link: a pair of interfaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Member and interface at the lower end.
    pub below: (String, String),
    /// Switch and interface at the upper end, which is a port of the switch's bridge.
    pub above: (String, String),
}

/// Members and links of one lab.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// The shape that it was derived from.
    pub shape: Shape,
    /// What every link does.
    pub links: LinkOptions,
    /// Switches from the top down, then manager, aggregators and hosts.
    pub members: Vec<Member>,
}

impl Plan {
    /// The plan for a shape.
    #[must_use]
    pub fn new(shape: Shape, links: LinkOptions) -> Self {
        let leaves: Vec<String> = (0..shape.leaves()).map(|leaf| format!("leaf{leaf}")).collect();
        let spine = (leaves.len() > 1).then(|| SPINE.to_owned());
        let top = spine.clone().unwrap_or_else(|| leaves[0].clone());
        let mut members: Vec<Member> = spine.iter().map(|name| switch(name, None)).collect();
        members.extend(leaves.iter().map(|name| switch(name, spine.as_deref())));
        members.push(attach_member(MANAGER, Role::Manager, Ipv4Addr::new(10, 77, 0, 1), &top));
        let switches: Vec<&String> = spine.iter().chain(&leaves).collect();
        let address_of = |at: usize| Ipv4Addr::new(10, 77, 1, 1 + at as u8);
        let mut stand_beside = |switches: &[&String]| {
            for (at, name) in switches.iter().enumerate() {
                members.push(attach_member(
                    &format!("{name}-an"),
                    Role::Node,
                    address_of(at),
                    name,
                ));
            }
        };
        match shape.nodes() {
            NodePlacement::All => stand_beside(&switches),
            NodePlacement::Spine => stand_beside(&[&top]),
            NodePlacement::Inside => {
                for (at, member) in members.iter_mut().take(switches.len()).enumerate() {
                    member.address = Some(address_of(at));
                }
            }
        }
        for host in 0..shape.hosts() {
            let address = Ipv4Addr::new(10, 77, 2, 1 + host as u8);
            let leaf = &leaves[shape.leaf_of(host) as usize];
            members.push(attach_member(&format!("h{host}"), Role::Host, address, leaf));
        }
        Self { shape, links, members }
    }

    /// The member of a name.
    #[must_use]
    pub fn member(&self, name: &str) -> Option<&Member> {
        self.members.iter().find(|member| member.name == name)
    }

    /// Members of a role.
    pub fn members_of(&self, role: Role) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(move |member| member.role == role)
    }

    /// Members that run an aggregation node's daemon.
    pub fn nodes(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.has_node())
    }

    /// The interface that a member's address is at.
    #[must_use]
    pub fn addressed_interface(&self, member: &Member) -> &'static str {
        match member.role {
            Role::Switch if !self.links.has_delay() => BRIDGE,
            _ => MEMBER_INTERFACE,
        }
    }

    /// Members with an address: those that send and receive.
    pub fn speakers(&self) -> impl Iterator<Item = &Member> {
        self.members.iter().filter(|member| member.address.is_some())
    }

    /// How long frames from one member to another are held: half of the delay on the link of each, half of the spine's
    /// on each link between a leaf and the spine. Those of an aggregator inside a switch need no link of its own.
    #[must_use]
    pub fn hold_ns(&self, source: &Member, target: &Member) -> u64 {
        let links = &self.links;
        let own = |member: &Member| u64::from(member.role != Role::Switch);
        let switch_of = |member: &Member| match member.role {
            Role::Switch => Some(member.name.clone()),
            _ => member.switch.clone(),
        };
        let (from, to) = (switch_of(source), switch_of(target));
        let is_spine = |switch: &Option<String>| switch.as_deref() == Some(SPINE);
        let between = match (from == to, is_spine(&from) || is_spine(&to)) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 2,
        };
        let delay = links.delay.map_or(0, Delay::nanoseconds);
        ((own(source) + own(target)) * delay + between * links.spine_delay.nanoseconds()) / 2
    }

    /// Every link between two interfaces; none in a lab whose frames a switch in user space carries.
    #[must_use]
    pub fn cables(&self) -> Vec<Cable> {
        let cable = |member: &Member| {
            let above = member.switch.clone()?;
            let interface = match member.role {
                Role::Switch => above.clone(),
                _ => MEMBER_INTERFACE.to_owned(),
            };
            Some(Cable {
                below: (member.name.clone(), interface),
                above: (above, member.name.clone()),
            })
        };
        let members = if self.links.has_delay() { &[][..] } else { &self.members[..] };
        members.iter().filter_map(cable).collect()
    }

    /// Interfaces that carry links at a member.
    #[must_use]
    pub fn interfaces_of(&self, member: &str) -> Vec<String> {
        if self.links.has_delay() {
            let speaks = self.speakers().any(|speaker| speaker.name == member);
            return speaks.then(|| MEMBER_INTERFACE.to_owned()).into_iter().collect();
        }
        self.cables()
            .into_iter()
            .flat_map(|cable| [cable.below, cable.above])
            .filter_map(|(name, interface)| (name == member).then_some(interface))
            .collect()
    }

    /// The address at which the manager listens.
    #[must_use]
    pub fn manager_address(&self) -> String {
        let manager = self.member(MANAGER).and_then(|member| member.address);
        format!("{}:{DAEMON_PORT}", manager.expect("every plan has a manager with an address"))
    }

    /// The fabric as the manager's topology file.
    #[must_use]
    pub fn topology(&self) -> String {
        let mut text = String::new();
        for switch in self.members_of(Role::Switch) {
            let below = |role| {
                let names: Vec<String> = self
                    .members_of(role)
                    .filter(|member| member.switch.as_ref() == Some(&switch.name))
                    .map(|member| format!("{:?}", member.name))
                    .collect();
                names.join(", ")
            };
            // Writing into a string can't fail.
            let _ = write!(
                text,
                "[[switch]]\nname = {:?}\nlinks = [{}]\nhosts = [{}]\n\n",
                switch.name,
                below(Role::Switch),
                below(Role::Host),
            );
        }
        for node in self.nodes() {
            let at = match node.role {
                Role::Switch => &node.name,
                _ => node.switch.as_ref().expect("a node is beside a switch"),
            };
            let _ = write!(text, "[[aggregation-node]]\nname = {:?}\nat = {at:?}\n\n", node.name);
        }
        text
    }

    /// The members' names for `/etc/hosts`.
    #[must_use]
    pub fn hosts_file(&self) -> String {
        let mut text = "127.0.0.1 localhost\n".to_owned();
        for member in &self.members {
            if let Some(address) = member.address {
                let _ = writeln!(text, "{address} {}", member.name);
            }
        }
        text
    }
}

fn switch(name: &str, above: Option<&str>) -> Member {
    Member {
        name: name.to_owned(),
        role: Role::Switch,
        address: None,
        switch: above.map(str::to_owned),
    }
}

fn attach_member(name: &str, role: Role, address: Ipv4Addr, at: &str) -> Member {
    Member { name: name.to_owned(), role, address: Some(address), switch: Some(at.to_owned()) }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn plan(hosts: u32, hosts_per_leaf: u32, nodes: NodePlacement) -> Plan {
        let shape = Shape::new(hosts, hosts_per_leaf, nodes).unwrap();
        Plan::new(shape, LinkOptions::default())
    }

    fn names(plan: &Plan, role: Role) -> Vec<&str> {
        plan.members_of(role).map(|member| member.name.as_str()).collect()
    }

    #[test]
    fn two_leaves_have_a_spine_and_a_node_each() {
        let plan = plan(6, 4, NodePlacement::All);
        assert_eq!(names(&plan, Role::Switch), ["spine", "leaf0", "leaf1"]);
        assert_eq!(names(&plan, Role::Node), ["spine-an", "leaf0-an", "leaf1-an"]);
        assert_eq!(names(&plan, Role::Host), ["h0", "h1", "h2", "h3", "h4", "h5"]);
        assert_eq!(plan.member("h3").unwrap().switch.as_deref(), Some("leaf0"));
        assert_eq!(plan.member("h4").unwrap().switch.as_deref(), Some("leaf1"));
        assert_eq!(plan.member(MANAGER).unwrap().switch.as_deref(), Some("spine"));
        assert_eq!(plan.interfaces_of("leaf1"), ["spine", "leaf1-an", "h4", "h5"]);
        assert_eq!(plan.interfaces_of("h5"), ["eth0"]);
    }

    #[test]
    fn one_leaf_needs_no_spine() {
        let plan = plan(8, 8, NodePlacement::Spine);
        assert_eq!(names(&plan, Role::Switch), ["leaf0"]);
        assert_eq!(names(&plan, Role::Node), ["leaf0-an"]);
        // Every member but the switch has one link, to it.
        assert_eq!(plan.cables().len(), 10);
    }

    #[test]
    fn names_addresses_and_interfaces_are_unique_at_the_largest() {
        for hosts_per_leaf in [1, 64] {
            let plan = plan(64, hosts_per_leaf, NodePlacement::All);
            let names: HashSet<&str> =
                plan.members.iter().map(|member| member.name.as_str()).collect();
            assert_eq!(names.len(), plan.members.len());
            let addressed: Vec<Ipv4Addr> =
                plan.members.iter().filter_map(|member| member.address).collect();
            assert_eq!(addressed.iter().collect::<HashSet<_>>().len(), addressed.len());
            for member in &plan.members {
                let interfaces = plan.interfaces_of(&member.name);
                assert_eq!(interfaces.iter().collect::<HashSet<_>>().len(), interfaces.len());
                // The kernel's limit on interface names.
                assert!(interfaces.iter().all(|name| name.len() <= 15));
            }
        }
    }

    #[test]
    fn nodes_inside_switches_need_no_links() {
        let plan = plan(8, 4, NodePlacement::Inside);
        assert_eq!(names(&plan, Role::Node), [""; 0]);
        let nodes: Vec<_> = plan.nodes().map(|member| member.name.as_str()).collect();
        assert_eq!(nodes, ["spine", "leaf0", "leaf1"]);
        assert_eq!(plan.interfaces_of("leaf1"), ["spine", "h4", "h5", "h6", "h7"]);
        assert!(
            plan.topology().contains("[[aggregation-node]]\nname = \"leaf1\"\nat = \"leaf1\"\n")
        );
    }

    #[test]
    fn frames_are_held_half_on_each_link() {
        let links = LinkOptions {
            delay: Some("1ms".parse().unwrap()),
            spine_delay: "300us".parse().unwrap(),
            ..LinkOptions::default()
        };
        for (nodes, expected) in [
            // Between two hosts of a leaf and of two, from a host to its aggregator, from an aggregator to the one
            // above.
            (NodePlacement::All, [1_000_000, 1_300_000, 1_000_000, 1_150_000]),
            (NodePlacement::Inside, [1_000_000, 1_300_000, 500_000, 150_000]),
        ] {
            let plan = Plan::new(Shape::new(4, 2, nodes).unwrap(), links);
            let ends = match nodes {
                NodePlacement::Inside => ["leaf0", "spine"],
                _ => ["leaf0-an", "spine-an"],
            };
            let hold = |source: &str, target: &str| {
                plan.hold_ns(plan.member(source).unwrap(), plan.member(target).unwrap())
            };
            let pairs = [("h0", "h1"), ("h0", "h3"), ("h0", ends[0]), (ends[0], ends[1])];
            assert_eq!(pairs.map(|(source, target)| hold(source, target)), expected);
            assert_eq!(pairs.map(|(source, target)| hold(target, source)), expected);
            assert_eq!(plan.cables(), []);
            assert_eq!(plan.interfaces_of("h0"), ["eth0"]);
        }
    }

    #[test]
    fn the_topology_says_where_everything_is() {
        let text = plan(2, 1, NodePlacement::Spine).topology();
        assert_eq!(
            text,
            "[[switch]]\nname = \"spine\"\nlinks = [\"leaf0\", \"leaf1\"]\nhosts = []\n\n\
             [[switch]]\nname = \"leaf0\"\nlinks = []\nhosts = [\"h0\"]\n\n\
             [[switch]]\nname = \"leaf1\"\nlinks = []\nhosts = [\"h1\"]\n\n\
             [[aggregation-node]]\nname = \"spine-an\"\nat = \"spine\"\n\n"
        );
    }
}
