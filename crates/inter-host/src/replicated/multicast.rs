//! Multicast: one datagram for all other members of a group, where that was proven to come to each of them.
//!
//! Owns the addresses of groups and what a host receives there. Must not know who decides whether to multicast.

use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tributary_transport::udp::MulticastReceivers;
use tributary_transport::{DatagramSocket, Unqueued};
use tributary_wire::Capability;

/// Groups multicast to the part of IPv4's addresses that belongs to an organization (RFC 2365): 239.192.0.0/14.
const FIRST_ADDRESS: u32 = u32::from_be_bytes([239, 192, 0, 0]);
const ADDRESS_BITS: u32 = 18;

/// Levels of replicated groups: all that a plan can have.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LevelSet(u32);

impl LevelSet {
    /// All that there can be.
    pub const ALL: Self = Self(u32::MAX);

    /// Those that are in both.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Of these bits, the lowest of which stands for the first level.
    #[must_use]
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// See [`LevelSet::from_bits`].
    #[must_use]
    pub fn bits(self) -> u32 {
        self.0
    }

    /// Whether `level` is one of them.
    #[must_use]
    pub fn contains(self, level: usize) -> bool {
        u32::try_from(level).is_ok_and(|level| self.0.checked_shr(level).unwrap_or(0) & 1 == 1)
    }

    /// Adds a level. One that is too high for the set is left out.
    pub fn insert(&mut self, level: usize) {
        self.0 |= u32::try_from(level).map_or(0, |level| 1_u32.checked_shl(level).unwrap_or(0));
    }
}

/// One level's multicasts at one host.
pub(super) struct Subscription {
    pub(super) address: SocketAddr,
    pub(super) socket: DatagramSocket,
    pub(super) unqueued: Unqueued,
}

impl Subscription {
    /// Takes what the group of a level multicasts, whose first member takes datagrams at `first`. What this host sends from
    /// `sender` to that address goes out where its own datagrams come in. None where that can't be had: copies do the same.
    pub(super) fn open(
        first: SocketAddr,
        level: u32,
        sender: &DatagramSocket,
        capability: Capability,
    ) -> Option<Self> {
        let (SocketAddr::V4(first), Ok(SocketAddr::V4(own))) = (first, sender.address()) else {
            return None;
        };
        let address = address_of(first, level);
        let mut socket = DatagramSocket::subscribe_to_many(address, *own.ip()).ok()?;
        sender.multicast_from(*own.ip(), MulticastReceivers::Network).ok()?;
        // A filter is no check, as for datagrams that come to this host alone.
        let _ = socket.queue_holders([capability]);
        Some(Self { address: address.into(), unqueued: socket.drop_counter(), socket })
    }
}

/// Where a group multicasts: each member knows where the first of them takes datagrams. Two groups of one site may come to the
/// same address, as rarely as 18 bits say; the port tells most of those apart, and the kernel's filter the others.
fn address_of(first: SocketAddrV4, level: u32) -> SocketAddrV4 {
    let [a, b, c, d] = first.ip().octets();
    let [high, low] = first.port().to_be_bytes();
    // FNV-1a, its bits folded into those that there are.
    let hash = [a, b, c, d, high, low, level as u8]
        .into_iter()
        .fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let host = (hash ^ hash >> ADDRESS_BITS) & ((1 << ADDRESS_BITS) - 1);
    SocketAddrV4::new(Ipv4Addr::from_bits(FIRST_ADDRESS | host), first.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_have_addresses_of_their_own_within_the_organizations() {
        let mut all = std::collections::BTreeSet::new();
        for host in 1..=100 {
            for level in 0..3 {
                let address =
                    address_of(SocketAddrV4::new([10, 77, 1, host].into(), 40_000), level);
                assert!(matches!(address.ip().octets(), [239, 192..=195, _, _]), "{address}");
                assert_eq!(address.port(), 40_000);
                all.insert(address);
            }
        }
        assert!(all.len() > 290, "{} addresses of 300 groups", all.len());
    }

    #[test]
    fn a_set_holds_the_levels_that_were_put_into_it() {
        let mut levels = LevelSet::default();
        [0, 3, 40].into_iter().for_each(|level| levels.insert(level));
        assert_eq!([0, 1, 3, 40].map(|level| levels.contains(level)), [true, false, true, false]);
        assert_eq!(LevelSet::from_bits(levels.bits()), levels);
    }
}
