//! What the switch reads in a frame: the virtio-net header (OASIS virtio 1.2, section 5.1.6), and Ethernet's behind it.

/// Bytes of the virtio-net header, as a TAP device puts it in front.
pub(crate) const HEADER_BYTES: usize = 10;

const ETHERNET_BYTES: usize = 14;

/// What a frame takes on a wire beside its bytes: preamble, check sequence and the gap to the next.
const WIRE_EXTRA_BYTES: u64 = 24;

/// A frame without check sequence has at least so many bytes on a wire.
const FRAME_MIN_BYTES: u64 = 60;

const IPV4: [u8; 2] = [0x08, 0x00];
const IPV6: [u8; 2] = [0x86, 0xdd];

/// The hardware address that a frame is for; `None` if it is too short.
pub(super) fn target(frame: &[u8]) -> Option<[u8; 6]> {
    (frame.len() >= HEADER_BYTES + ETHERNET_BYTES)
        .then(|| frame[HEADER_BYTES..HEADER_BYTES + 6].try_into().expect("six bytes"))
}

/// Whether an address is one of a group: multicast or broadcast.
pub(super) fn is_group(address: [u8; 6]) -> bool {
    address[0] & 1 == 1
}

/// Whether a frame holds an IP packet.
pub(super) fn is_ip(frame: &[u8]) -> bool {
    let kind = &frame[HEADER_BYTES + 12..HEADER_BYTES + ETHERNET_BYTES];
    kind == IPV4 || kind == IPV6
}

/// Whether a frame holds an IP packet for several receivers, and not for all.
pub(super) fn is_multicast_ip(frame: &[u8]) -> bool {
    is_ip(frame) && frame[HEADER_BYTES..HEADER_BYTES + 6] != [0xff; 6]
}

/// The bytes that a frame's packets take on a wire. A sender may leave it to the network card to cut segments
/// (`gso_type`, `hdr_len` and `gso_size`); each of them then has headers of its own.
pub(super) fn wire_bytes(frame: &[u8]) -> u64 {
    let field = |at: usize| u64::from(u16::from_ne_bytes([frame[at], frame[at + 1]]));
    let bytes = (frame.len() - HEADER_BYTES) as u64;
    let (kind, headers, segment) = (frame[1], field(2), field(4));
    if kind == 0 || segment == 0 || bytes <= headers {
        return bytes.max(FRAME_MIN_BYTES) + WIRE_EXTRA_BYTES;
    }
    let segments = (bytes - headers).div_ceil(segment);
    bytes + (segments - 1) * headers + segments * WIRE_EXTRA_BYTES
}
