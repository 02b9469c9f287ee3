//! The addresses that this host has on its networks, and where it listens at them.

use std::ffi::CStr;
use std::net::{IpAddr, SocketAddr};
use std::ptr;

use libc::{ifaddrs, sockaddr};
use tributary_settings::{InterfaceChoice, Ports, share_bits};

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
        self.network_bits == other.network_bits
            && share_bits(self.address, other.address, self.network_bits)
    }
}

/// Listens by `bind` at a port that the system chooses, or at one of `ports` that is free. `is_taken` says whether an error
/// is that of a port that is not.
///
/// # Errors
/// That of the last port.
pub fn listen_within<T, E>(
    address: IpAddr,
    ports: Option<Ports>,
    mut bind: impl FnMut(SocketAddr) -> Result<T, E>,
    is_taken: impl Fn(&E) -> bool,
) -> Result<T, E> {
    let Some(ports) = ports else { return bind(SocketAddr::new(address, 0)) };
    let mut outcomes =
        ports.from(std::process::id()).map(|port| bind(SocketAddr::new(address, port)));
    let mut outcome = outcomes.next().expect("a range has a port");
    while outcome.as_ref().is_err_and(&is_taken) {
        let Some(next) = outcomes.next() else { break };
        outcome = next;
    }
    outcome
}

/// The addresses of interfaces that are up, in the kernel's order, as far as they are admitted. Loopback and link-local ones
/// are left out: no other host reaches them, or not without the name of an interface.
#[must_use]
pub fn host_addresses(admitted: Option<&InterfaceChoice>) -> Vec<HostAddress> {
    let mut first = ptr::null_mut();
    // SAFETY: the function writes one pointer to the place it is given.
    if unsafe { libc::getifaddrs(&raw mut first) } != 0 {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut next = first;
    // SAFETY: `next` is null or an entry of the list, which lives until it is freed below.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: every entry has a name that ends with a zero.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy();
        let is_admitted =
            |it: &HostAddress| admitted.is_none_or(|choice| choice.admits(&name, it.address));
        found.extend(usable(entry).filter(is_admitted));
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
        for HostAddress { address, network_bits } in host_addresses(None) {
            assert!(!address.is_loopback(), "{address}");
            assert!(network_bits > 0 && network_bits <= 128, "{address}/{network_bits}");
        }
        let none = InterfaceChoice::Named("no-such-one".to_owned());
        assert_eq!(host_addresses(Some(&none)), []);
    }

    #[test]
    fn a_port_of_the_range_is_taken_that_is_free() {
        let is_taken = |error: &std::io::Error| error.kind() == std::io::ErrorKind::AddrInUse;
        let listen = |ports| {
            listen_within([127, 0, 0, 1].into(), ports, std::net::TcpListener::bind, is_taken)
        };
        let taken = listen(None).unwrap();
        let first = taken.local_addr().unwrap().port();
        assert!(listen(Some(Ports { first, last: first })).is_err_and(|error| is_taken(&error)));
        // Others may take ports of the range meanwhile, but not so many.
        let ports = Ports { first: first.min(60_000), last: first.min(60_000) + 200 };
        let other = listen(Some(ports)).unwrap().local_addr().unwrap().port();
        assert!(
            other != first && (ports.first..=ports.last).contains(&other),
            "{other} of {ports}"
        );
    }
}
