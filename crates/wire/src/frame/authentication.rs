//! How a header announces that an authentication code follows the payload. The transport makes and
//! checks the codes.

use super::HEADER_BYTES;

/// Length of the code behind the payload of an authenticated frame.
pub const CODE_BYTES: usize = 16;

/// Where a header says what follows it, and the bit for a code. Bit 0 says that there are data.
const FOLLOWS_AT: usize = 6;
const CODE_FOLLOWS: u8 = 2;

/// Whether a code of [`CODE_BYTES`] follows the payload.
#[must_use]
pub const fn announces_code(header: &[u8; HEADER_BYTES]) -> bool {
    header[FOLLOWS_AT] & CODE_FOLLOWS != 0
}

/// The same header, announcing a code behind the payload.
#[must_use]
pub const fn announcing_code(mut header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    header[FOLLOWS_AT] |= CODE_FOLLOWS;
    header
}

/// The same header without the announcement, as [`Header::decode`](super::Header::decode) takes it. Only
/// the transport knows of codes.
#[must_use]
pub const fn without_code(mut header: [u8; HEADER_BYTES]) -> [u8; HEADER_BYTES] {
    header[FOLLOWS_AT] &= !CODE_FOLLOWS;
    header
}
