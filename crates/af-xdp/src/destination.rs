//! Where datagrams go to, as the program knows it.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

/// Where a datagram goes to, in the packet's order of bytes; addresses of IPv4 are mapped into those of IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Destination {
    address: [u8; 16],
    port: [u8; 2],
}

impl Destination {
    /// As programs of the kernel know it: the address, the port, and two zeros.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..16].copy_from_slice(&self.address);
        bytes[16..18].copy_from_slice(&self.port);
        bytes
    }
}

/// An address as programs and messages have it: one of IPv4 mapped into IPv6. [`Ipv6Addr::to_canonical`] is the way back.
pub(crate) fn map_into_ipv6(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped(),
        IpAddr::V6(v6) => v6,
    }
}

impl From<SocketAddr> for Destination {
    fn from(address: SocketAddr) -> Self {
        let ip = map_into_ipv6(address.ip());
        Self { address: ip.octets(), port: address.port().to_be_bytes() }
    }
}

impl From<Destination> for SocketAddr {
    fn from(destination: Destination) -> Self {
        let Destination { address, port } = destination;
        Self::new(Ipv6Addr::from_octets(address).to_canonical(), u16::from_be_bytes(port))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_families_come_back() {
        for text in ["10.93.0.1:7471", "[fd93::1]:7471"] {
            let address: SocketAddr = text.parse().expect("an address");
            assert_eq!(SocketAddr::from(Destination::from(address)), address);
        }
        let mapped: SocketAddr = "[::ffff:10.93.0.1]:7471".parse().expect("an address");
        let plain: SocketAddr = "10.93.0.1:7471".parse().expect("an address");
        assert_eq!(Destination::from(mapped), Destination::from(plain));
    }
}
