//! The receive buffer: filled by large reads, emptied frame by frame.

use tributary_wire::frame::{CODE_BYTES, HEADER_BYTES, Header, announces_code, without_code};

use crate::{AuthenticationCode, Frame, ReceiveError};

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
        Self { buffer, start: 0, end: 0, held_bytes: 0, payload_max_bytes }
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
        Ok(self.begun_frame()?.filter(|begun| self.arrived_bytes() >= begun.frame_bytes()))
    }

    /// The beginning of the next frame if its header has arrived.
    fn begun_frame(&self) -> Result<Option<Begun>, ReceiveError> {
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
        self.frame(begun)
    }

    /// The room for the next read; never empty. The next frame is not complete.
    pub(super) fn room(&mut self) -> Result<&mut [u8], ReceiveError> {
        let need_bytes = self.begun_frame()?.map_or(HEADER_BYTES, |begun| begun.frame_bytes());
        if self.start + need_bytes > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            self.end -= self.start;
            self.start = 0;
        }
        Ok(&mut self.buffer[self.end..])
    }

    /// Notes that a read put `got_bytes` into `room`.
    pub(super) fn add_filled(&mut self, got_bytes: usize) {
        self.end += got_bytes;
        assert!(
            self.end <= self.buffer.len(),
            "the kernel writes no more than it is given room for"
        );
    }

    /// The error of a connection that ended here.
    pub(super) fn closing_error(&self) -> ReceiveError {
        let got_bytes = self.arrived_bytes();
        match self.begun_frame() {
            _ if got_bytes == 0 => ReceiveError::Closed,
            Ok(begun) => {
                let need_bytes = begun.map_or(HEADER_BYTES, |begun| begun.frame_bytes());
                ReceiveError::Truncated { got_bytes, need_bytes }
            }
            Err(error) => error,
        }
    }
}
