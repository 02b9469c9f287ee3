//! The receive buffer: filled by large reads, emptied frame by frame.

use tributary_wire::frame::{CODE_BYTES, HEADER_BYTES, Header, announces_code, without_code};

use crate::{AuthenticationCode, Frame, ReceiveError};

/// From this length on, a read ends where the frame ends. What it took of the next one would have to move to the front
/// of the buffer as a rule, and that costs more than the reads that are spared.
const READ_ALONE_BYTES: usize = 32 << 10;

/// Bytes that have arrived and haven't been released.
///
/// Holds one of the longest frames and a batch. Bytes move to the front only when the frame that
/// they begin would not fit otherwise.
pub(super) struct Input {
    buffer: Box<[u8]>,
    /// Where the next frame begins.
    start: usize,
    /// Behind the last byte that has arrived.
    end: usize,
    /// Length of the frame handed out at `start`, not yet released.
    held_bytes: usize,
    /// Length of the frame handed out last: the next is expected to be as long.
    last_bytes: usize,
    payload_max_bytes: u32,
}

/// The beginning of a frame: its checked header, and whether a code follows the payload.
#[derive(Clone, Copy)]
pub(super) struct Begun {
    pub(super) header: Header,
    is_authenticated: bool,
}

impl Begun {
    fn frame_bytes(&self) -> usize {
        let code_bytes = if self.is_authenticated { CODE_BYTES } else { 0 };
        HEADER_BYTES + self.header.payload_bytes() + code_bytes
    }
}

impl Input {
    pub(super) fn new(payload_max_bytes: u32, batch_bytes: usize) -> Self {
        let bytes = HEADER_BYTES + payload_max_bytes as usize + CODE_BYTES + batch_bytes;
        let buffer = vec![0; bytes].into_boxed_slice();
        Self { buffer, start: 0, end: 0, held_bytes: 0, last_bytes: 0, payload_max_bytes }
    }

    pub(super) fn release(&mut self) {
        self.start += self.held_bytes;
        self.held_bytes = 0;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The beginning of the next frame if all of the frame has arrived. No frame is held.
    pub(super) fn complete(&self) -> Result<Option<Begun>, ReceiveError> {
        Ok(self.begun()?.filter(|begun| self.arrived_bytes() >= begun.frame_bytes()))
    }

    /// The beginning of the next frame if its header has arrived.
    fn begun(&self) -> Result<Option<Begun>, ReceiveError> {
        let Some(bytes) = self.buffer[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let is_authenticated = announces_code(bytes);
        let header = match is_authenticated {
            true => Header::decode(&without_code(*bytes))?,
            false => Header::decode(bytes)?,
        };
        let announced_bytes = header.payload_bytes();
        if announced_bytes > self.payload_max_bytes as usize {
            let max_bytes = self.payload_max_bytes;
            return Err(ReceiveError::TooLong { announced_bytes, max_bytes });
        }
        Ok(Some(Begun { header, is_authenticated }))
    }

    fn arrived_bytes(&self) -> usize {
        self.end - self.start
    }

    /// The complete frame that begins with `begun`.
    pub(super) fn frame(&self, begun: &Begun) -> Frame<'_> {
        let end = self.start + begun.frame_bytes();
        let behind_header = &self.buffer[self.start + HEADER_BYTES..end];
        let (payload, code) = behind_header.split_at(begun.header.payload_bytes());
        // `code` is empty where the frame is not authenticated.
        let code = code.first_chunk().map(|code| AuthenticationCode::from_bytes(*code));
        Frame { header: begun.header, payload, code }
    }

    /// Hands out the complete frame that begins with `begun`, and holds it.
    pub(super) fn take(&mut self, begun: &Begun) -> Frame<'_> {
        self.held_bytes = begun.frame_bytes();
        self.last_bytes = self.held_bytes;
        self.frame(begun)
    }

    /// The room for the next read; never empty. The next frame is not complete.
    pub(super) fn room(&mut self) -> Result<&mut [u8], ReceiveError> {
        let begun = self.begun()?;
        let need_bytes = begun.map_or(HEADER_BYTES, |begun| begun.frame_bytes());
        if self.start + need_bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        let expected_bytes = begun.map_or(self.last_bytes, |begun| begun.frame_bytes());
        let end = match expected_bytes {
            READ_ALONE_BYTES.. => self.buffer.len().min(self.start + expected_bytes),
            _ => self.buffer.len(),
        };
        Ok(&mut self.buffer[self.end..end])
    }

    /// Notes that a read put `got_bytes` into `room`.
    pub(super) fn filled(&mut self, got_bytes: usize) {
        self.end += got_bytes;
        assert!(
            self.end <= self.buffer.len(),
            "the kernel writes no more than it is given room for"
        );
    }

    /// The error of a connection that ended here.
    pub(super) fn closed(&self) -> ReceiveError {
        let got_bytes = self.arrived_bytes();
        match self.begun() {
            _ if got_bytes == 0 => ReceiveError::Closed,
            Ok(begun) => {
                let need_bytes = begun.map_or(HEADER_BYTES, |begun| begun.frame_bytes());
                ReceiveError::Truncated { got_bytes, need_bytes }
            }
            Err(error) => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use tributary_wire::frame::{Edge, Message, Part, RetransmitState, Shape, Target, Versions};
    use tributary_wire::{
        Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator, SegmentIndex,
        Sequence,
    };

    use super::*;

    const BATCH_BYTES: usize = 64 << 10;

    fn frame(number: u32, payload_bytes: u32) -> Vec<u8> {
        let part = Part {
            operation: OperationNumber(number),
            segment: SegmentIndex(0),
            sequence: Sequence(number),
            shape: Shape::new(Operator::BitXor, Datatype::U8, payload_bytes).unwrap(),
            target: Target::All,
            has_data: true,
            retransmit: RetransmitState { attempt: 0, behind: 0 },
        };
        let edge = Edge {
            group: GroupId(1),
            epoch: Epoch(2),
            child: ChildIndex(3),
            capability: Capability::from_bytes([4; 16]),
            version: Versions::SPOKEN.newest,
        };
        let payload = vec![number as u8; payload_bytes as usize];
        [&Header { edge, message: Message::Request(part) }.encode()[..], &payload].concat()
    }

    /// Reads frames of these lengths from a peer that has sent them all. Returns how many reads it took, and how many
    /// times a read left a part of a frame behind whole ones.
    fn read_all(payloads_bytes: &[u32]) -> (usize, usize) {
        let mut input = Input::new(64 << 10, BATCH_BYTES);
        let sent: Vec<u8> =
            (0..).zip(payloads_bytes).flat_map(|(number, &bytes)| frame(number, bytes)).collect();
        let (mut at, mut frames, mut reads, mut parts) = (0, 0, 0, 0);
        while frames < payloads_bytes.len() {
            let room = input.room().unwrap();
            let got = room.len().min(sent.len() - at);
            assert!(got > 0, "{frames} frames, {at} bytes");
            room[..got].copy_from_slice(&sent[at..at + got]);
            input.filled(got);
            (at, reads) = (at + got, reads + 1);
            let before = frames;
            while let Some(begun) = input.complete().unwrap() {
                let frame = input.take(&begun);
                assert_eq!(frame.payload.len(), payloads_bytes[frames] as usize);
                assert!(frame.payload.iter().all(|&byte| byte == frames as u8));
                input.release();
                frames += 1;
            }
            parts += usize::from(frames > before && input.arrived_bytes() > 0);
        }
        (reads, parts)
    }

    #[test]
    fn reads_of_long_frames_end_where_they_end() {
        let (reads, parts) = read_all(&[64 << 10; 20]);
        // The first read knows of no frame yet.
        assert_eq!((reads, parts), (20, 1));
    }

    #[test]
    fn short_frames_are_read_together() {
        let (reads, _) = read_all(&[1000; 200]);
        assert!(reads <= 3, "{reads}");
    }

    #[test]
    fn frames_of_any_lengths_are_read_whole() {
        read_all(&[
            65_536, 2, 1, 40_000, 40_000, 32_703, 32_704, 32_705, 7, 65_536, 65_536, 3, 3, 9,
        ]);
    }
}
