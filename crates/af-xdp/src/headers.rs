//! The headers of datagrams: Ethernet, IPv4 without options (RFC 791) or IPv6 without further headers (RFC 8200), and UDP (RFC 768).

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::ops::Range;

const ETHERNET_BYTES: usize = 14;
const IP_BYTES: usize = 20;
const IPV6_BYTES: usize = 40;
const UDP_BYTES: usize = 8;
/// All headers.
pub(crate) const HEADERS_BYTES: usize = ETHERNET_BYTES + IP_BYTES + UDP_BYTES;

const IP: Range<usize> = ETHERNET_BYTES..ETHERNET_BYTES + IP_BYTES;
const UDP_START: usize = ETHERNET_BYTES + IP_BYTES;

const IPV4: [u8; 2] = 0x0800_u16.to_be_bytes();
const VERSION_AND_LENGTH: u8 = 0x45;
const DO_NOT_FRAGMENT: [u8; 2] = 0x4000_u16.to_be_bytes();
const UDP: u8 = 17;
/// As the kernel sends by default (RFC 1700).
const HOPS: u8 = 64;

/// The hardware addresses of packets to a peer: the next hop's, then this interface's.
pub(crate) type Route = [u8; 12];

/// A datagram that arrived whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Arrived<'a> {
    pub(crate) source: SocketAddrV4,
    /// The way back to where it came from.
    pub(crate) route_back: Route,
    pub(crate) payload: &'a [u8],
}

/// Where a packet that the program has steered here goes to.
pub(crate) fn target(packet: &[u8]) -> Option<SocketAddrV4> {
    let (headers, _) = packet.split_first_chunk::<HEADERS_BYTES>()?;
    let address = Ipv4Addr::new(headers[30], headers[31], headers[32], headers[33]);
    Some(SocketAddrV4::new(address, u16::from_be_bytes([headers[36], headers[37]])))
}

/// Reads a packet. None if it is no datagram, or a damaged one.
pub(crate) fn read(packet: &[u8]) -> Option<Arrived<'_>> {
    let (ethernet, behind) = packet.split_first_chunk::<ETHERNET_BYTES>()?;
    if ethernet[12..] != IPV4 {
        return None;
    }
    let (source, payload) = read_ipv4(behind)?;
    let mut route_back = Route::default();
    route_back[..6].copy_from_slice(&ethernet[6..12]);
    route_back[6..].copy_from_slice(&ethernet[..6]);
    Some(Arrived { source, route_back, payload })
}

/// Reads a packet that arrived at an interface from its header of IP on: its source, and what it carries. None if it is no datagram, or a
/// damaged one.
///
/// A checksum may be left to a network card that there is not, where a packet has crossed no wire: then it covers addresses and length only.
/// It may also be left out, as UDP over IPv4 allows.
pub(crate) fn read_from_ip(packet: &[u8], interface: u32) -> Option<(SocketAddr, &[u8])> {
    match packet.first()? >> 4 {
        4 => read_ipv4(packet).map(|(source, payload)| (source.into(), payload)),
        6 => read_ipv6(packet, interface).map(|(source, payload)| (source.into(), payload)),
        _ => None,
    }
}

fn read_ipv4(packet: &[u8]) -> Option<(SocketAddrV4, &[u8])> {
    let (ip, behind) = packet.split_first_chunk::<IP_BYTES>()?;
    let is_datagram =
        ip[0] == VERSION_AND_LENGTH && ip[9] == UDP && matches!(ip[6..8], [0 | 0x40, 0]);
    let total_bytes = usize::from(u16::from_be_bytes([ip[2], ip[3]]));
    let datagram = Datagram::read(behind, total_bytes.checked_sub(IP_BYTES)?)?;
    let is_whole = datagram.checksum == 0 || datagram.is_whole(&ip[12..20]);
    let address = Ipv4Addr::new(ip[12], ip[13], ip[14], ip[15]);
    (is_datagram && is_whole)
        .then(|| (SocketAddrV4::new(address, datagram.source_port), datagram.payload()))
}

fn read_ipv6(packet: &[u8], interface: u32) -> Option<(SocketAddrV6, &[u8])> {
    let (ip, behind) = packet.split_first_chunk::<IPV6_BYTES>()?;
    let datagram = Datagram::read(behind, u16::from_be_bytes([ip[4], ip[5]]).into())?;
    let is_datagram = ip[0] >> 4 == 6 && ip[6] == UDP && datagram.is_whole(&ip[8..40]);
    let (source, _) = ip[8..].split_first_chunk::<16>()?;
    let address = Ipv6Addr::from_octets(*source);
    // As the kernel tells it: an address of the link says on which one.
    let scope = if address.is_unicast_link_local() { interface } else { 0 };
    is_datagram
        .then(|| (SocketAddrV6::new(address, datagram.source_port, 0, scope), datagram.payload()))
}

/// What is behind the headers of IP.
struct Datagram<'a> {
    bytes: &'a [u8],
    source_port: u16,
    checksum: u16,
}

impl<'a> Datagram<'a> {
    /// None if it has another length than IP says. What is behind that is Ethernet's padding.
    fn read(behind: &'a [u8], len_bytes: usize) -> Option<Self> {
        let bytes = behind.get(..len_bytes)?;
        let (udp, _) = bytes.split_first_chunk::<UDP_BYTES>()?;
        let is_its = usize::from(u16::from_be_bytes([udp[4], udp[5]])) == len_bytes;
        is_its.then_some(Self {
            bytes,
            source_port: u16::from_be_bytes([udp[0], udp[1]]),
            checksum: u16::from_ne_bytes([udp[6], udp[7]]),
        })
    }

    /// Whether the checksum is right, or is left to a card.
    fn is_whole(&self, addresses: &[u8]) -> bool {
        let pseudo = pseudo_header_sum(addresses, self.bytes.len() as u16);
        checksum(add_words(self.bytes, pseudo)) == 0 || self.checksum == !checksum(pseudo)
    }

    fn payload(&self) -> &'a [u8] {
        &self.bytes[UDP_BYTES..]
    }
}

/// The headers of a datagram, checksums included.
///
/// # Panics
/// If the payload is longer than a datagram may be.
pub(crate) fn write(
    route: &Route,
    source: SocketAddrV4,
    target: SocketAddrV4,
    payload: &[u8],
) -> [u8; HEADERS_BYTES] {
    let datagram_bytes =
        u16::try_from(UDP_BYTES + payload.len()).expect("a datagram has 64 KiB at most");
    let ip_bytes = datagram_bytes + IP_BYTES as u16;
    let mut headers = [0; HEADERS_BYTES];
    headers[..12].copy_from_slice(route);
    headers[12..14].copy_from_slice(&IPV4);
    let ip = &mut headers[IP];
    ip[0] = VERSION_AND_LENGTH;
    ip[2..4].copy_from_slice(&ip_bytes.to_be_bytes());
    ip[6..8].copy_from_slice(&DO_NOT_FRAGMENT);
    ip[8] = HOPS;
    ip[9] = UDP;
    ip[12..16].copy_from_slice(&source.ip().octets());
    ip[16..20].copy_from_slice(&target.ip().octets());
    let of_ip = checksum(add_words(ip, 0));
    ip[10..12].copy_from_slice(&of_ip.to_ne_bytes());
    let pseudo = pseudo_header_sum(&ip[12..20], datagram_bytes);
    let udp = &mut headers[UDP_START..];
    udp[..2].copy_from_slice(&source.port().to_be_bytes());
    udp[2..4].copy_from_slice(&target.port().to_be_bytes());
    udp[4..6].copy_from_slice(&datagram_bytes.to_be_bytes());
    let of_udp = checksum(add_words(payload, add_words(udp, pseudo)));
    // A checksum of 0 says that there is none.
    let of_udp = if of_udp == 0 { 0xffff } else { of_udp };
    udp[6..8].copy_from_slice(&of_udp.to_ne_bytes());
    headers
}

/// The sum over what UDP adds to its own bytes: addresses, protocol and length.
fn pseudo_header_sum(addresses: &[u8], datagram_bytes: u16) -> u64 {
    let [high, low] = datagram_bytes.to_be_bytes();
    add_words(addresses, add_words(&[0, UDP, high, low], 0))
}

/// Adds bytes to a sum that becomes a checksum. It is one of words in this machine's order of bytes, and so is the checksum: where words
/// lie in memory the order cancels out (RFC 1071). All bytes but the last ones come in whole words.
fn add_words(bytes: &[u8], sum: u64) -> u64 {
    let (words, rest) = bytes.as_chunks::<4>();
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    words.iter().chain([&last]).fold(sum, |sum, word| sum + u64::from(u32::from_ne_bytes(*word)))
}

/// The checksum of what was added: the complement of the sum, whose carries come in again.
fn checksum(sum: u64) -> u16 {
    let mut sum = sum;
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;

    const ROUTE: Route = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];

    fn ends() -> (SocketAddrV4, SocketAddrV4) {
        let at = |host, port| SocketAddrV4::new(Ipv4Addr::new(10, 0, 0, host), port);
        (at(1, 4711), at(2, 7471))
    }

    fn packet(payload: &[u8]) -> Vec<u8> {
        let (source, target) = ends();
        [&write(&ROUTE, source, target, payload)[..], payload].concat()
    }

    /// RFC 1071, section 1, by the letter.
    fn sum_of_words(bytes: impl IntoIterator<Item = u8>) -> u16 {
        let bytes: Vec<_> = bytes.into_iter().collect();
        let word = |pair: &[u8]| u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
        let mut sum: u32 = bytes.chunks(2).map(word).sum();
        while sum > 0xffff {
            sum = (sum & 0xffff) + (sum >> 16);
        }
        sum as u16
    }

    #[test]
    fn what_is_written_is_read_and_its_checksums_are_right() {
        let mut random = Pcg64::seed_from_u64(1);
        let (source, target) = ends();
        for len_bytes in (0..200).chain([511, 1024, 1388, 1389]) {
            let payload: Vec<u8> = (0..len_bytes).map(|_| random.random()).collect();
            let packet = packet(&payload);
            assert_eq!(sum_of_words(packet[IP].iter().copied()), 0xffff, "{len_bytes} bytes");
            let pseudo = packet[26..34]
                .iter()
                .copied()
                .chain([0, UDP])
                .chain(packet[38..40].iter().copied());
            let all = pseudo.chain(packet[UDP_START..].iter().copied());
            assert_eq!(sum_of_words(all), 0xffff, "{len_bytes} bytes");
            let route_back = [&ROUTE[6..], &ROUTE[..6]].concat().try_into().expect("twelve bytes");
            let arrived = Arrived { source, route_back, payload: &payload };
            assert_eq!(read(&packet), Some(arrived));
            assert_eq!(super::target(&packet), Some(target));
        }
    }

    #[test]
    fn damaged_and_other_packets_are_no_datagrams() {
        let whole = packet(&[7; 72]);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            // Not covered: hardware addresses; class, number, hops and checksum of IPv4, which its next hop checks.
            let is_covered = !matches!(at, 0..12 | 15 | 18..20 | 22 | 24..26);
            assert_eq!(read(&damaged).is_none(), is_covered, "byte {at}");
        }
        for len_bytes in 0..whole.len() {
            assert_eq!(read(&whole[..len_bytes]), None, "cut to {len_bytes} bytes");
        }
        let padded = [&whole[..], &[0; 18]].concat();
        assert_eq!(read(&padded).map(|it| it.payload.len()), Some(72));
    }

    #[test]
    fn checksums_may_be_left_out_or_left_to_a_card() {
        let whole = packet(&[7; 72]);
        let with = |checksum: u16| {
            let mut other = whole.clone();
            other[40..42].copy_from_slice(&checksum.to_ne_bytes());
            read(&other).is_some()
        };
        let of_addresses = !checksum(pseudo_header_sum(&whole[26..34], 80));
        assert!(with(0) && with(of_addresses));
        assert!(!with(of_addresses ^ 1));
    }

    /// A datagram over IPv6, from its header on (RFC 8200, RFC 768).
    fn packet_of_ipv6(payload: &[u8]) -> Vec<u8> {
        let ends = [1, 2].map(|host| Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, host));
        let datagram_bytes = (UDP_BYTES + payload.len()) as u16;
        let mut packet = vec![0x60, 0, 0, 0];
        packet.extend_from_slice(&datagram_bytes.to_be_bytes());
        packet.extend_from_slice(&[UDP, HOPS]);
        ends.iter().for_each(|end| packet.extend_from_slice(&end.octets()));
        for number in [4711, 7471, datagram_bytes, 0] {
            packet.extend_from_slice(&u16::to_be_bytes(number));
        }
        packet.extend_from_slice(payload);
        let addresses = packet[8..IPV6_BYTES].iter().copied();
        let behind = [0, 0].into_iter().chain(datagram_bytes.to_be_bytes()).chain([0, 0, 0, UDP]);
        let datagram = packet[IPV6_BYTES..].iter().copied();
        let checksum = !sum_of_words(addresses.chain(behind).chain(datagram));
        packet[46..48].copy_from_slice(&checksum.to_be_bytes());
        packet
    }

    #[test]
    fn datagrams_of_ipv6_are_read_and_damaged_ones_are_not() {
        let source: SocketAddr = "[fd93::1]:4711".parse().expect("an address");
        for len_bytes in [0, 1, 72, 1451] {
            let payload = vec![7; len_bytes];
            let padded = [packet_of_ipv6(&payload), vec![0; 9]].concat();
            assert_eq!(read_from_ip(&padded, 3), Some((source, &payload[..])));
        }
        let whole = packet_of_ipv6(&[7; 72]);
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0x10;
            // Not covered: class, flow and hops.
            let is_covered = !matches!(at, 1..4 | 7);
            assert_eq!(read_from_ip(&damaged, 3).is_none(), is_covered, "byte {at}");
        }
        for len_bytes in 0..whole.len() {
            assert_eq!(read_from_ip(&whole[..len_bytes], 3), None, "cut to {len_bytes} bytes");
        }
        // Over IPv6 none may be left out.
        let mut without = whole.clone();
        without[46..48].fill(0);
        assert_eq!(read_from_ip(&without, 3), None);
        let pseudo = pseudo_header_sum(&whole[8..IPV6_BYTES], 80);
        without[46..48].copy_from_slice(&(!super::checksum(pseudo)).to_ne_bytes());
        assert!(read_from_ip(&without, 3).is_some(), "it may be left to a card");
    }

    #[test]
    fn an_address_of_the_link_says_which_link() {
        let mut packet = packet_of_ipv6(&[7; 72]);
        packet[8..10].copy_from_slice(&[0xfe, 0x80]);
        // What one word adds to the sum another takes off.
        packet[10..12].copy_from_slice(&(0xfd93_i32 - 0xfe80 + 0xffff).to_be_bytes()[2..]);
        let sum_is_kept = read_from_ip(&packet, 3);
        let expected = sum_is_kept.map(|(source, _)| source);
        assert!(matches!(expected, Some(SocketAddr::V6(it)) if it.scope_id() == 3), "{expected:?}");
    }
}
