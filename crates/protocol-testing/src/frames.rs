//! Frames as bytes, and parts of operations for tests.

use tributary_protocol::Carrier;
use tributary_wire::frame::{
    DecodeError, Edge, HEADER_BYTES, Header, MAGIC, Part, RetransmitState, Shape, Target, Version,
    Versions,
};
use tributary_wire::{OperationNumber, SegmentIndex, Sequence};

/// What the build after this one speaks. The layout of its newest version is to come; here it is today's newest.
pub const NEXT_BUILD: Versions = {
    let newest = Versions::SPOKEN.newest;
    Versions { oldest: newest, newest: Version(newest.0 + 1) }
};

/// A frame's bytes.
#[must_use]
pub fn encode(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// Splits bytes into the header and the payload of a frame whose length is right. Reads what the next build
/// sends, too.
///
/// # Errors
/// A text that says what is wrong.
pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let header = header(bytes).map_err(|error| error.to_string())?;
    let payload = &bytes[HEADER_BYTES..];
    if payload.len() == header.payload_bytes() {
        Ok((header, payload))
    } else {
        Err("its length is not what it says".to_owned())
    }
}

fn header(bytes: &[u8]) -> Result<Header, DecodeError> {
    const VERSION_AT: usize = MAGIC.len();
    match bytes.first_chunk() {
        Some(first) if Version(first[VERSION_AT]) == NEXT_BUILD.newest => {
            let mut first: [u8; HEADER_BYTES] = *first;
            first[VERSION_AT] = NEXT_BUILD.oldest.0;
            let Header { edge, message } = Header::decode(&first)?;
            Ok(Header { edge: Edge { version: NEXT_BUILD.newest, ..edge }, message })
        }
        _ => Header::decode(bytes),
    }
}

/// A whole vector in one part, for all members; not a repeat.
#[must_use]
pub fn part(operation: OperationNumber, sequence: Sequence, shape: Shape) -> Part {
    Part {
        operation,
        segment: SegmentIndex(0),
        sequence,
        shape,
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState::default(),
    }
}

/// The sequence of the `number`th segment, or chunk.
#[must_use]
pub fn sequence(number: u32) -> Sequence {
    Sequence(Sequence::FIRST.0.wrapping_add(number))
}

/// The carrier of a frame that may be a datagram.
#[must_use]
pub fn carrier(is_datagram: bool) -> Carrier {
    if is_datagram { Carrier::Datagram } else { Carrier::Link }
}
