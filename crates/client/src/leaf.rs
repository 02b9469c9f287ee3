//! Which leaf switch this host is at, as far as something tells: the user, Slurm, or the network of its address, where each
//! leaf has one of its own.
//!
//! Nothing is timed. A name only tells which hosts share it.

use std::collections::HashMap;
use std::net::IpAddr;

use tributary_algorithms::Leaves;
use tributary_inter_host::{HostAddress, host_addresses};
use tributary_settings::Settings;

/// Where Slurm says which switches lead to a host, if it knows: `spine.leaf.host`.
const SLURM_ADDRESS: &str = "SLURM_TOPOLOGY_ADDR";

/// Of a longer name the end is told to other hosts.
const NAME_BYTES_MAX: usize = 64;

/// Stands between a host's name and its leaf's. Neither has one.
const SEPARATOR: char = '\t';

/// The name of this host's leaf; empty if nothing tells it.
pub(crate) fn find(
    settings: &Settings,
    machine: &str,
    address: impl FnOnce() -> Option<IpAddr>,
) -> String {
    let named = || settings.leaf.clone();
    let by_slurm = || leaf_of_slurm(&std::env::var(SLURM_ADDRESS).ok()?, machine);
    let by_network = || {
        let address = address()?;
        let known = host_addresses(None).into_iter().find(|known| known.address == address)?;
        network_of(&known)
    };
    let name = named().or_else(by_slurm).or_else(by_network).unwrap_or_default();
    let end = name.len().saturating_sub(NAME_BYTES_MAX);
    name[name.ceil_char_boundary(end)..].replace(SEPARATOR, " ")
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

/// What a rank tells of its host: its name, and its leaf's.
pub(crate) fn with_leaf(host: &str, leaf: &str) -> String {
    format!("{host}{SEPARATOR}{leaf}")
}

/// Takes both apart.
pub(crate) fn split(told: &str) -> (&str, &str) {
    told.split_once(SEPARATOR).unwrap_or((told, ""))
}

/// Hosts by the names of their leaves. Nothing is known unless it is of all of them.
pub(crate) fn leaves<'a>(names: impl Iterator<Item = &'a str> + Clone) -> Leaves {
    if names.clone().any(str::is_empty) {
        return Leaves::unknown(names.count() as u32);
    }
    let mut numbers = HashMap::new();
    let number_of = |name| {
        let next = numbers.len() as u32;
        *numbers.entry(name).or_insert(next)
    };
    Leaves::new(&names.map(number_of).collect::<Vec<u32>>())
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
        assert_eq!(find(&settings("rack 7"), "h@1", || None), "rack 7");
        assert_eq!(find(&settings(&"x".repeat(100)), "h@1", || None).len(), NAME_BYTES_MAX);
        assert_eq!(find(&settings(""), "h@1", || None), "");
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
        let of = |names: &[&str]| leaves(names.iter().copied());
        assert_eq!(of(&["a", "b", "a", "b"]), Leaves::new(&[0, 1, 0, 1]));
        assert_eq!(of(&["a", "", "a", "b"]), Leaves::unknown(4));
        assert_eq!(of(&["a", "a"]), Leaves::unknown(2));
        assert_eq!(split(&with_leaf("h3@1", "s0.s4")), ("h3@1", "s0.s4"));
        assert_eq!(split("h3@1"), ("h3@1", ""));
    }
}
