//! On which network, and at which ports, other hosts reach this one.

use std::fmt;
use std::net::IpAddr;
use std::ops::RangeInclusive;

/// Longest name of a network interface.
const NAME_BYTES_MAX: usize = 15;

/// Which addresses of a host other hosts may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum InterfaceChoice {
    /// Those of the interface of that name.
    Named(String),
    /// Those of a network.
    Network {
        /// An address on it.
        address: IpAddr,
        /// How many of its first bits all have.
        bits: u32,
    },
    /// Those of IPv4.
    Ipv4,
    /// Those of IPv6.
    Ipv6,
}

impl InterfaceChoice {
    /// A name, a network as in 10.1.0.0/16, or ipv4 or ipv6.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "ipv4" => return Some(Self::Ipv4),
            "ipv6" => return Some(Self::Ipv6),
            _ => {}
        }
        if let Some((address, bits)) = text.split_once('/') {
            let address: IpAddr = address.parse().ok()?;
            let most = if address.is_ipv4() { 32 } else { 128 };
            let bits = bits.parse().ok().filter(|bits| *bits <= most)?;
            return Some(Self::Network { address, bits });
        }
        let is_name = !text.is_empty()
            && text.len() <= NAME_BYTES_MAX
            && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':');
        is_name.then(|| Self::Named(text.to_owned()))
    }

    /// Whether an address that this host has at an interface is one of them.
    #[must_use]
    pub fn admits(&self, interface: &str, own: IpAddr) -> bool {
        match (self, own) {
            (Self::Named(name), _) => name == interface,
            (Self::Ipv4, _) => own.is_ipv4(),
            (Self::Ipv6, _) => own.is_ipv6(),
            (Self::Network { address, bits }, _) => share_bits(*address, own, *bits),
        }
    }
}

/// Whether two addresses are of one family and have the same first bits.
#[must_use]
pub fn share_bits(one: IpAddr, other: IpAddr, bits: u32) -> bool {
    let same_bits = match (one, other) {
        (IpAddr::V4(one), IpAddr::V4(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        (IpAddr::V6(one), IpAddr::V6(other)) => (one.to_bits() ^ other.to_bits()).leading_zeros(),
        _ => return false,
    };
    same_bits >= bits
}

impl fmt::Display for InterfaceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Named(name) => f.write_str(name),
            Self::Network { address, bits } => write!(f, "{address}/{bits}"),
            Self::Ipv4 => f.write_str("ipv4"),
            Self::Ipv6 => f.write_str("ipv6"),
        }
    }
}

/// The ports that listeners may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ports {
    /// The first.
    pub first: u16,
    /// The last, not below it.
    pub last: u16,
}

impl Ports {
    /// FIRST-LAST, or one port.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.parse().ok()?, last.parse().ok()?);
        (first > 0 && first <= last).then_some(Self { first, last })
    }

    /// All of them once, in an order that begins anywhere, so that processes that start together seldom meet.
    pub fn from(self, start: u32) -> impl Iterator<Item = u16> {
        let all: RangeInclusive<u32> = self.first.into()..=self.last.into();
        let count = u32::from(self.last - self.first) + 1;
        all.map(move |port| {
            self.first + ((port - u32::from(self.first) + start % count) % count) as u16
        })
    }
}

impl fmt::Display for Ports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.first, self.last)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_is_a_name_a_network_or_a_family() {
        let admits = |choice: &str, interface: &str, address: &str| {
            let choice = InterfaceChoice::parse(choice).unwrap();
            assert_eq!(InterfaceChoice::parse(&choice.to_string()), Some(choice.clone()));
            choice.admits(interface, address.parse().unwrap())
        };
        assert!(admits("eth0", "eth0", "10.0.0.1"));
        assert!(!admits("eth0", "eth1", "10.0.0.1"));
        assert!(admits("10.1.0.0/16", "eth1", "10.1.9.9"));
        assert!(!admits("10.1.0.0/16", "eth1", "10.2.9.9"));
        assert!(!admits("10.1.0.0/16", "eth1", "fd00::1"));
        assert!(admits("fd00::/8", "eth1", "fd12::1"));
        assert!(admits("0.0.0.0/0", "eth1", "10.2.9.9"));
        assert!(admits("ipv6", "eth1", "fd00::1") && !admits("ipv6", "eth1", "10.0.0.1"));
        assert!(admits("ipv4", "eth1", "10.0.0.1") && !admits("ipv4", "eth1", "fd00::1"));
        for wrong in ["", "10.0.0.0/33", "10.0.0/8", "eth 0", "a-name-that-is-too-long"] {
            assert_eq!(InterfaceChoice::parse(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn ports_are_taken_once_each_from_anywhere() {
        let ports = Ports::parse("20000-20003").unwrap();
        assert_eq!(ports.from(0).collect::<Vec<_>>(), [20_000, 20_001, 20_002, 20_003]);
        assert_eq!(ports.from(6).collect::<Vec<_>>(), [20_002, 20_003, 20_000, 20_001]);
        assert_eq!(Ports::parse("7470"), Some(Ports { first: 7470, last: 7470 }));
        assert_eq!(Ports::parse("1-65535").unwrap().from(u32::MAX).count(), 65_535);
        for wrong in ["", "0-5", "9-5", "1-65536", "any"] {
            assert_eq!(Ports::parse(wrong), None, "{wrong}");
        }
    }
}
