//! The addresses that this host has on its networks.

use std::net::IpAddr;
use std::ptr;

use libc::{ifaddrs, sockaddr};

/// An address of this host, and how many of its first bits are its network's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostAddress {
    /// The address.
    pub address: IpAddr,
    /// Bits of the network.
    pub network_bits: u32,
}

impl HostAddress {
    /// Whether both are on one network.
    #[must_use]
    pub fn shares_network(&self, other: &Self) -> bool {
        let differing_bits = match (self.address, other.address) {
            (IpAddr::V4(one), IpAddr::V4(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            (IpAddr::V6(one), IpAddr::V6(other)) => {
                (one.to_bits() ^ other.to_bits()).leading_zeros()
            }
            _ => return false,
        };
        self.network_bits == other.network_bits && differing_bits >= self.network_bits
    }
}

/// The addresses of interfaces that are up, in the kernel's order. Loopback and link-local ones are left out: no other
/// host reaches them, or not without the name of an interface.
#[must_use]
pub fn host_addresses() -> Vec<HostAddress> {
    let mut first = ptr::null_mut();
    // SAFETY: the function writes one pointer to the place it is given.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which lives until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        found.extend(usable(entry));
        next = entry.ifa_next;
    }
    // SAFETY: the list is the one that the system made, and nothing refers to it any more.
    unsafe { libc::freeifaddrs(first) };
    found
}

fn usable(entry: &ifaddrs) -> Option<HostAddress> {
    let flags = entry.ifa_flags.cast_signed();
    if flags & libc::IFF_UP == 0
        || flags & libc::IFF_RUNNING == 0
        || flags & libc::IFF_LOOPBACK != 0
    {
        return None;
    }
    let address = address_of(entry.ifa_addr)?;
    let network_bits = match address_of(entry.ifa_netmask)? {
        IpAddr::V4(mask) => mask.to_bits().leading_ones(),
        IpAddr::V6(mask) => mask.to_bits().leading_ones(),
    };
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    (!is_link_local).then_some(HostAddress { address, network_bits })
}

/// The address in an entry of the system's list; none if it is of another family.
fn address_of(place: *const sockaddr) -> Option<IpAddr> {
    // SAFETY: the system's entries are null or whole.
    let family = unsafe { place.as_ref() }?.sa_family;
    match i32::from(family) {
        libc::AF_INET => {
            // SAFETY: of this family an entry is a `sockaddr_in`, aligned as the system made it.
            let v4 = unsafe { place.cast::<libc::sockaddr_in>().read_unaligned() };
            Some(IpAddr::from(v4.sin_addr.s_addr.to_ne_bytes()))
        }
        libc::AF_INET6 => {
            // SAFETY: of this family an entry is a `sockaddr_in6`, aligned as the system made it.
            let v6 = unsafe { place.cast::<libc::sockaddr_in6>().read_unaligned() };
            Some(IpAddr::from(v6.sin6_addr.s6_addr))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str, network_bits: u32) -> HostAddress {
        HostAddress { address: text.parse().unwrap(), network_bits }
    }

    #[test]
    fn a_network_is_shared_by_addresses_with_the_same_first_bits() {
        assert!(at("10.0.0.1", 24).shares_network(&at("10.0.0.9", 24)));
        assert!(!at("10.0.0.1", 24).shares_network(&at("10.0.1.1", 24)));
        assert!(!at("10.0.0.1", 24).shares_network(&at("10.0.0.9", 16)));
        assert!(at("fd00::1", 64).shares_network(&at("fd00::ffff", 64)));
        assert!(!at("fd00::1", 64).shares_network(&at("10.0.0.1", 64)));
    }

    #[test]
    fn what_other_hosts_cannot_reach_is_left_out() {
        for HostAddress { address, network_bits } in host_addresses() {
            assert!(!address.is_loopback(), "{address}");
            assert!(network_bits > 0 && network_bits <= 128, "{address}/{network_bits}");
        }
    }
}
