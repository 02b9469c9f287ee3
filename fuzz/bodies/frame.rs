//! Any bytes: decoding never panics, and what decodes is the only encoding of its message.

use tributary_wire::frame::{HEADER_BYTES, Header, MAGIC, PAYLOAD_BYTES_MAX, Versions};

/// Decodes `bytes` as they are, and again below a valid magic and version, because a fuzzer that
/// does not see comparisons would rarely guess those. True if either decodes.
pub(crate) fn run(bytes: &[u8]) -> bool {
    let mut dressed = bytes.to_vec();
    if dressed.len() > MAGIC.len() {
        dressed[..MAGIC.len()].copy_from_slice(&MAGIC);
        dressed[MAGIC.len()] = Versions::SPOKEN.newest.0;
    }
    let is_frame = check(bytes);
    check(&dressed) || is_frame
}

fn check(bytes: &[u8]) -> bool {
    let Ok(header) = Header::decode(bytes) else { return false };
    assert!(header.payload_bytes() <= PAYLOAD_BYTES_MAX);
    assert_eq!(header.encode()[..], bytes[..HEADER_BYTES]);
    true
}
