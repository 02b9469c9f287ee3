//! The receive buffer: filled by large reads, emptied frame by frame.

use tributary_wire::frame::{HEADER_BYTES, Header};

use crate::ReceiveError;

/// Bytes that have arrived and haven't been released.
///
/// Holds one frame of the longest kind and a batch besides. Bytes are moved only when the frame they
/// begin wouldn't fit behind them.
pub(super) struct Input {
    buffer: Box<[u8]>,
    /// Where the frame to come begins.
    start: usize,
    /// Behind the last byte that has arrived.
    end: usize,
    /// Length of the frame handed out at `start`, not yet released.
    held_bytes: usize,
    payload_max_bytes: u32,
}

impl Input {
    pub(super) fn new(payload_max_bytes: u32, batch_bytes: usize) -> Self {
        let bytes = HEADER_BYTES + payload_max_bytes as usize + batch_bytes;
        let buffer = vec![0; bytes].into_boxed_slice();
        Self { buffer, start: 0, end: 0, held_bytes: 0, payload_max_bytes }
    }

    pub(super) fn release(&mut self) {
        self.start += self.held_bytes;
        self.held_bytes = 0;
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
    }

    /// The header of the next frame if all of it has arrived. Nothing is held.
    pub(super) fn complete(&self) -> Result<Option<Header>, ReceiveError> {
        Ok(self.begun()?.filter(|header| self.arrived_bytes() >= frame_bytes(header)))
    }

    /// The header of the next frame if the header has arrived.
    fn begun(&self) -> Result<Option<Header>, ReceiveError> {
        let Some(bytes) = self.buffer[self.start..self.end].first_chunk::<HEADER_BYTES>() else {
            return Ok(None);
        };
        let header = Header::decode(bytes)?;
        let announced_bytes = header.payload_bytes();
        if announced_bytes > self.payload_max_bytes as usize {
            let max_bytes = self.payload_max_bytes;
            return Err(ReceiveError::TooLong { announced_bytes, max_bytes });
        }
        Ok(Some(header))
    }

    fn arrived_bytes(&self) -> usize {
        self.end - self.start
    }

    /// Hands out the payload of the complete frame with this header, and holds the frame.
    pub(super) fn take(&mut self, header: &Header) -> &[u8] {
        self.held_bytes = frame_bytes(header);
        &self.buffer[self.start + HEADER_BYTES..self.start + self.held_bytes]
    }

    /// Where the next read goes; never empty. The next frame is not complete.
    pub(super) fn room(&mut self) -> Result<&mut [u8], ReceiveError> {
        let need_bytes = self.begun()?.map_or(HEADER_BYTES, |header| frame_bytes(&header));
        if self.start + need_bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        Ok(&mut self.buffer[self.end..])
    }

    /// Notes that a read put `got_bytes` where `room` said.
    pub(super) fn filled(&mut self, got_bytes: usize) {
        self.end += got_bytes;
        assert!(
            self.end <= self.buffer.len(),
            "the kernel writes no more than it is given room for"
        );
    }

    /// What it means that no more bytes come.
    pub(super) fn closed(&self) -> ReceiveError {
        let got_bytes = self.arrived_bytes();
        match self.begun() {
            _ if got_bytes == 0 => ReceiveError::Closed,
            Ok(header) => {
                let need_bytes = header.map_or(HEADER_BYTES, |header| frame_bytes(&header));
                ReceiveError::Truncated { got_bytes, need_bytes }
            }
            Err(error) => error,
        }
    }
}

fn frame_bytes(header: &Header) -> usize {
    HEADER_BYTES + header.payload_bytes()
}
