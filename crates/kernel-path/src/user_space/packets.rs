//! Packets as the program sees them: Ethernet, IPv4 and UDP around a frame.

use std::net::{Ipv4Addr, SocketAddrV4};

/// How a packet gives its UDP checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Checksum {
    /// Left out.
    None,
    /// Over everything.
    Full,
    /// Over addresses and length only: the network card is to do the rest.
    Partial,
}

/// Where a packet's frame begins.
pub const HEAD_BYTES: usize = 14 + 20 + 8;

/// A packet as it comes from a host. `hardware` is the target's Ethernet address, then the sender's.
#[must_use]
pub fn packet(
    from: SocketAddrV4,
    to: SocketAddrV4,
    hardware: [u8; 12],
    checksum: Checksum,
    frame: &[u8],
) -> Vec<u8> {
    let mut bytes = hardware.to_vec();
    bytes.extend([8, 0]);
    let mut header = [0; 20];
    header[0] = 0x45;
    header[2..4].copy_from_slice(&((28 + frame.len()) as u16).to_be_bytes());
    header[6] = 0x40;
    header[8] = 64;
    header[9] = 17;
    header[12..16].copy_from_slice(&from.ip().octets());
    header[16..20].copy_from_slice(&to.ip().octets());
    let sum = !sum_of(&header);
    header[10..12].copy_from_slice(&sum.to_be_bytes());
    bytes.extend(header);
    bytes.extend(from.port().to_be_bytes());
    bytes.extend(to.port().to_be_bytes());
    bytes.extend(((8 + frame.len()) as u16).to_be_bytes());
    bytes.extend([0, 0]);
    bytes.extend(frame);
    let sum = match checksum {
        Checksum::None => 0,
        Checksum::Partial => sum_of(&pseudo_header(&bytes)),
        Checksum::Full => match !datagram_sum(&bytes) {
            0 => 0xffff,
            sum => sum,
        },
    };
    bytes[40..42].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// What a packet says.
#[derive(Debug)]
pub struct Parsed<'a> {
    /// The target's Ethernet address, then the sender's.
    pub hardware: [u8; 12],
    /// The sender's address.
    pub from: SocketAddrV4,
    /// The receiver's address.
    pub to: SocketAddrV4,
    /// How its checksum may have been meant: one way, but for one packet in 65,536.
    pub checksums: Vec<Checksum>,
    /// The frame in it.
    pub frame: &'a [u8],
}

/// Takes a packet of the program apart.
///
/// # Panics
/// If a length or a checksum is wrong: the program sends no such packet.
#[must_use]
pub fn parse(bytes: &[u8]) -> Parsed<'_> {
    assert_eq!(bytes[12..15], [8, 0, 0x45], "IPv4 without options");
    assert_eq!(usize::from(number(bytes, 16)), bytes.len() - 14, "length of the packet");
    assert_eq!(bytes[23], 17, "UDP");
    assert_eq!(sum_of(&bytes[14..34]), 0xffff, "checksum of the address header");
    assert_eq!(usize::from(number(bytes, 38)), bytes.len() - 34, "length of the datagram");
    let sum = number(bytes, 40);
    let meanings = [
        (Checksum::None, sum == 0),
        (Checksum::Partial, sum == sum_of(&pseudo_header(bytes))),
        (Checksum::Full, sum != 0 && datagram_sum(bytes) == 0xffff),
    ];
    let checksums = meanings.into_iter().filter(|it| it.1).map(|it| it.0);
    let address = |at: usize| Ipv4Addr::from(*bytes[at..].first_chunk::<4>().expect("an address"));
    Parsed {
        hardware: *bytes.first_chunk().expect("two hardware addresses"),
        from: SocketAddrV4::new(address(26), number(bytes, 34)),
        to: SocketAddrV4::new(address(30), number(bytes, 36)),
        checksums: checksums.collect(),
        frame: &bytes[HEAD_BYTES..],
    }
}

fn number(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

fn pseudo_header(bytes: &[u8]) -> Vec<u8> {
    let mut pseudo = bytes[26..34].to_vec();
    pseudo.extend([0, 17]);
    pseudo.extend(&bytes[38..40]);
    pseudo
}

fn datagram_sum(bytes: &[u8]) -> u16 {
    let mut all = pseudo_header(bytes);
    all.extend(&bytes[34..]);
    sum_of(&all)
}

/// The sum of RFC 1071, not inverted.
fn sum_of(bytes: &[u8]) -> u16 {
    let mut sum = 0_u32;
    for pair in bytes.chunks(2) {
        sum += u32::from(u16::from_be_bytes([pair[0], pair.get(1).copied().unwrap_or(0)]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}
