//! Which leaf switch this host is at, as far as something tells: the user, Slurm, or the network of its address, where each
//! leaf has one of its own.
//!
//! Nothing is timed. A name or a network only tells which hosts share it.

use std::collections::HashMap;
use std::net::IpAddr;

use tributary_algorithms::Leaves;
use tributary_inter_host::{HostAddress, host_addresses};
use tributary_settings::Settings;

/// Where Slurm says which switches lead to a host, if it knows: `spine.leaf.host`.
const SLURM_ADDRESS: &str = "SLURM_TOPOLOGY_ADDR";

/// Of a longer name the end is told to other hosts.
const NAME_BYTES_MAX: usize = 36;

/// Stands between what a rank tells of its host. Neither has one.
const SEPARATOR: char = '\t';

/// What tells at which leaf switch a host is. Each is empty if it is not known.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Leaf {
    /// As the user or Slurm names it.
    named: String,
    /// The network of the host's address.
    network: String,
}

impl Leaf {
    /// That of this host.
    pub(crate) fn find(settings: &Settings, machine: &str, address: Option<IpAddr>) -> Self {
        let by_slurm = || leaf_of_slurm(&std::env::var(SLURM_ADDRESS).ok()?, machine);
        let named = settings.leaf.clone().or_else(by_slurm).unwrap_or_default();
        let cut = named.ceil_char_boundary(named.len().saturating_sub(NAME_BYTES_MAX));
        let of_address = |address| {
            let known = host_addresses(None).into_iter().find(|known| known.address == address)?;
            network_of(&known)
        };
        Self {
            named: named[cut..].replace(SEPARATOR, " "),
            network: address.and_then(of_address).unwrap_or_default(),
        }
    }

    /// What a rank tells of its host: its name, and its leaf.
    pub(crate) fn told_with(&self, host: &str) -> String {
        format!("{host}{SEPARATOR}{}{SEPARATOR}{}", self.named, self.network)
    }

    /// Takes both apart.
    pub(crate) fn split_from(told: &str) -> (String, Self) {
        let mut parts = told.splitn(3, SEPARATOR).map(str::to_owned);
        let mut next = || parts.next().unwrap_or_default();
        (next(), Self { named: next(), network: next() })
    }
}

/// The switches above a host. A value that names another host was handed on from there.
fn leaf_of_slurm(address: &str, machine: &str) -> Option<String> {
    let (switches, host) = address.rsplit_once('.')?;
    let own = machine.split(['.', '@']).next();
    (own == Some(host)).then(|| switches.to_owned())
}

/// The network of an address, unless it is that of one host.
fn network_of(known: &HostAddress) -> Option<String> {
    let bits = known.network_bits;
    let network = match known.address {
        IpAddr::V4(address) if bits < u32::BITS => {
            let mask = !(u32::MAX >> bits);
            IpAddr::V4((u32::from(address) & mask).into())
        }
        IpAddr::V6(address) if bits < u128::BITS => {
            let mask = !(u128::MAX >> bits);
            IpAddr::V6((u128::from(address) & mask).into())
        }
        _ => return None,
    };
    Some(format!("{network}/{bits}"))
}

/// Hosts by their leaves: by name if each has one, else by network if each has one, else nothing is known. A launcher may tell
/// some of its ranks less than others.
pub(crate) fn leaves<'a>(of_hosts: impl Iterator<Item = &'a Leaf> + Clone) -> Leaves {
    let names = of_hosts.clone().map(|leaf| leaf.named.as_str());
    let networks = of_hosts.map(|leaf| leaf.network.as_str());
    by_text(names)
        .or_else(|| by_text(networks.clone()))
        .unwrap_or_else(|| Leaves::unknown(networks.count() as u32))
}

fn by_text<'a>(texts: impl Iterator<Item = &'a str>) -> Option<Leaves> {
    let mut numbers = HashMap::new();
    let number_of = |text: &'a str| {
        let next = numbers.len() as u32;
        (!text.is_empty()).then(|| *numbers.entry(text).or_insert(next))
    };
    let of_hosts: Option<Vec<u32>> = texts.map(number_of).collect();
    Some(Leaves::new(&of_hosts?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(leaf: &str) -> Settings {
        let set = |name: &str| (name == "TRIBUTARY_LEAF").then(|| leaf.to_owned());
        Settings::from_environment(set).expect("settings")
    }

    #[test]
    fn the_user_names_the_leaf() {
        let named = |leaf: &str| Leaf::find(&settings(leaf), "h@1", None).named;
        assert_eq!(named("rack 7"), "rack 7");
        assert_eq!(named(&"x".repeat(100)).len(), NAME_BYTES_MAX);
        assert_eq!(named(""), "");
    }

    #[test]
    fn slurm_names_the_switches_above_its_own_node() {
        assert_eq!(leaf_of_slurm("s0.s4.n12", "n12@1").as_deref(), Some("s0.s4"));
        assert_eq!(leaf_of_slurm("s0.s4.n12", "n12.cluster.org@1").as_deref(), Some("s0.s4"));
        assert_eq!(leaf_of_slurm("s0.s4.n1", "n12@1"), None, "handed on from host 1");
        assert_eq!(leaf_of_slurm("n12", "n12@1"), None, "Slurm knows no switches");
    }

    #[test]
    fn a_network_of_more_than_one_host_stands_for_a_leaf() {
        let network = |address: &str, network_bits| {
            network_of(&HostAddress { address: address.parse().unwrap(), network_bits })
        };
        assert_eq!(network("10.1.2.77", 26).as_deref(), Some("10.1.2.64/26"));
        assert_eq!(network("10.1.2.77", 0).as_deref(), Some("0.0.0.0/0"));
        assert_eq!(network("10.1.2.77", 32), None);
        assert_eq!(network("fd00:1:2:3::9", 64).as_deref(), Some("fd00:1:2:3::/64"));
        assert_eq!(network("fd00::9", 128), None);
    }

    #[test]
    fn leaves_are_known_if_those_of_all_hosts_are() {
        let leaf =
            |(named, network): (&str, &str)| Leaf { named: named.into(), network: network.into() };
        let of = |all: &[(&str, &str)]| {
            let all: Vec<Leaf> = all.iter().copied().map(leaf).collect();
            leaves(all.iter())
        };
        assert_eq!(of(&[("a", ""), ("b", ""), ("a", ""), ("b", "")]), Leaves::new(&[0, 1, 0, 1]));
        assert_eq!(
            of(&[("", "x"), ("b", "x"), ("a", "y"), ("b", "y")]),
            Leaves::new(&[0, 0, 1, 1])
        );
        assert_eq!(of(&[("", "x"), ("b", "x"), ("a", ""), ("b", "y")]), Leaves::unknown(4));
        assert_eq!(of(&[("a", "x"), ("a", "y")]), Leaves::unknown(2));
    }

    #[test]
    fn a_rank_tells_its_host_and_leaf() {
        let leaf = Leaf { named: "s0.s4".into(), network: "10.1.0.0/16".into() };
        assert_eq!(Leaf::split_from(&leaf.told_with("h3@1")), ("h3@1".to_owned(), leaf));
        assert_eq!(Leaf::split_from("h3@1"), ("h3@1".to_owned(), Leaf::default()));
    }
}
