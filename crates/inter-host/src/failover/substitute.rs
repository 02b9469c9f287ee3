//! An operation carried over direct links in the tree's place.

use std::ops::Range;

use tributary_algorithms::Collective;
use tributary_wire::StreamTerms;
use tributary_wire::frame::Abort;

use super::pieces::{Piece, operation_of};
use super::terms::Terms;
use crate::direct::DirectLinks;
use crate::operation::{InterHost, InterHostOperation, stream_part_bytes};
use crate::tree::Running;

/// An operation, and how far it has come.
///
/// A stream goes part by part, because its source becomes ready so, and its result is awaited so. All
/// hosts cut it alike.
pub(super) struct Substitute {
    pub(super) operation: InterHostOperation,
    pub(super) is_stream: bool,
    len_bytes: usize,
    /// Bytes of the source that may be read.
    ready_bytes: usize,
    /// Bytes of the result that are in place.
    pub(super) done_bytes: usize,
    part_bytes: usize,
    /// The part that is under way.
    part: Option<Range<usize>>,
    /// Room for partial results at hosts that get no result.
    scratch: Vec<u8>,
}

impl Substitute {
    /// An operation of which the first `ready_bytes` may be sent.
    pub(super) fn new(operation: &InterHostOperation, ready_bytes: usize, terms: &Terms) -> Self {
        let is_barrier = operation.collective == Collective::Barrier;
        let len_bytes = if is_barrier { 0 } else { operation.len_bytes() };
        // By the length alone: hosts that began it in the tree and hosts that did not cut it alike.
        let stream = terms.stream_of(len_bytes);
        Self {
            operation: *operation,
            is_stream: stream.is_some(),
            len_bytes,
            ready_bytes,
            done_bytes: 0,
            part_bytes: stream.map_or(len_bytes, |terms| part_bytes(operation, terms)),
            part: None,
            scratch: Vec::new(),
        }
    }

    /// What a member had under way when it was cut off, from `first` on.
    pub(super) fn rest_of(running: &Running, first: usize, terms: &Terms) -> Self {
        let whole = Self::new(&running.operation, running.ready_bytes, terms);
        Self { done_bytes: first, ..whole }
    }

    /// A part of what a member had under way, which nobody has; in pieces if it is a stream of which
    /// not all may be ready.
    pub(super) fn part_of(running: &Running, part: Range<usize>, part_bytes: usize) -> Self {
        Self {
            operation: running.operation,
            is_stream: running.is_stream,
            len_bytes: part.end,
            ready_bytes: running.ready_bytes,
            done_bytes: part.start,
            part_bytes,
            part: None,
            scratch: Vec::new(),
        }
    }

    pub(super) fn make_ready(&mut self, ready_bytes: usize) {
        self.ready_bytes = ready_bytes;
    }

    /// Bytes of the source that may be read.
    pub(super) fn ready_bytes(&self) -> usize {
        self.ready_bytes
    }

    /// Goes as far as it can. `true` at the end.
    pub(super) fn advance(&mut self, links: &mut DirectLinks) -> Result<bool, Abort> {
        loop {
            if let Some(part) = &self.part {
                if !links.poll()? {
                    return Ok(false);
                }
                self.done_bytes = part.end;
                self.part = None;
                if self.done_bytes >= self.len_bytes {
                    return Ok(true);
                }
            }
            let end = (self.done_bytes + self.part_bytes).min(self.len_bytes);
            if end > self.ready_bytes {
                return Ok(false);
            }
            let part = self.done_bytes..end;
            let mut piece = Piece::of(&self.operation, &part);
            let gets_none = matches!(self.operation.collective, Collective::Reduce { root }
                if root != links.me());
            if gets_none {
                self.scratch.resize(part.len(), 0);
                piece.target = self.scratch.as_mut_ptr();
            }
            self.part = Some(part);
            // SAFETY: the part lies within the operation's buffers, which are its own until the engine
            // learns that it is over; the scratch is ours and stays where it is until then.
            unsafe { links.start(&operation_of(&self.operation, piece))? };
        }
    }
}

/// How a stream is cut over links: as the host's ranks cut it to reduce it.
fn part_bytes(operation: &InterHostOperation, terms: StreamTerms) -> usize {
    let element_bytes = operation.element_bytes;
    let chunk_bytes = terms.chunk_bytes as usize / element_bytes * element_bytes;
    stream_part_bytes(chunk_bytes.max(element_bytes), terms.window)
}
