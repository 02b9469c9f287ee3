//! Frames as bytes, and parts of operations for tests.

use tributary_protocol::Carrier;
use tributary_wire::frame::{HEADER_BYTES, Header, Part, RetransmitState, Shape, Target};
use tributary_wire::{OperationNumber, SegmentIndex, Sequence};

/// A frame's bytes.
#[must_use]
pub fn encode(header: &Header, payload: &[u8]) -> Vec<u8> {
    let mut bytes = header.encode().to_vec();
    bytes.extend_from_slice(payload);
    bytes
}

/// Splits bytes into the header and the payload of a frame whose length is right.
///
/// # Errors
/// A text that says what is wrong.
pub fn decode(bytes: &[u8]) -> Result<(Header, &[u8]), String> {
    let header = Header::decode(bytes).map_err(|error| error.to_string())?;
    let payload = &bytes[HEADER_BYTES..];
    if payload.len() == header.payload_bytes() {
        Ok((header, payload))
    } else {
        Err("its length is not what it says".to_owned())
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
