//! Requests of an edge that are not answered yet.

use std::collections::VecDeque;

use tributary_wire::frame::Message;

/// How many answered sequences are remembered: as many as may be repeated.
const ANSWERED_MAX: usize = 32;

/// A horizon that no test reaches: no request is given up.
const HORIZON: u32 = 1 << 30;

/// How many requests of one kind are unanswered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InFlight {
    /// Segments.
    Segments(usize),
    /// Chunks of a stream.
    Chunks(usize),
}

/// Segments and chunks that were sent up over one edge and are not answered.
#[derive(Debug)]
pub struct Windows {
    segments: Window,
    chunks: Window,
    horizon: u32,
}

#[derive(Debug, Default)]
struct Window {
    outstanding: Vec<u32>,
    /// The last sequences that were answered. Repeats of them may still be on their way.
    answered: VecDeque<u32>,
}

impl Default for Windows {
    fn default() -> Self {
        Self::with_horizon(HORIZON)
    }
}

impl Windows {
    /// Gives up a request that lies `horizon` or more before the newest.
    #[must_use]
    pub fn with_horizon(horizon: u32) -> Self {
        Self { segments: Window::default(), chunks: Window::default(), horizon }
    }

    /// Notes what is sent up. Returns how many of its kind are unanswered then.
    pub fn on_sent(&mut self, message: &Message) -> Option<InFlight> {
        match message {
            Message::Request(part) => {
                let count = self.segments.on_request(part.sequence.0, self.horizon);
                Some(InFlight::Segments(count))
            }
            Message::Chunk(part) => {
                let count = self.chunks.on_request(part.sequence.0, self.horizon);
                Some(InFlight::Chunks(count))
            }
            _ => None,
        }
    }

    /// Notes what came down and was accepted.
    pub fn on_taken(&mut self, message: &Message) {
        match message {
            Message::Result(part) => self.segments.on_result(part.sequence.0),
            Message::ChunkResult(part) => self.chunks.on_result(part.sequence.0),
            // Every stream counts its chunks anew.
            Message::StreamGrant(_) => self.chunks = Window::default(),
            _ => {}
        }
    }
}

impl Window {
    fn on_request(&mut self, sequence: u32, horizon: u32) -> usize {
        self.outstanding.retain(|earlier| {
            sequence.wrapping_sub(*earlier).cast_signed() < horizon.cast_signed()
        });
        if !self.outstanding.contains(&sequence) && !self.answered.contains(&sequence) {
            self.outstanding.push(sequence);
        }
        self.outstanding.len()
    }

    fn on_result(&mut self, sequence: u32) {
        self.outstanding.retain(|earlier| *earlier != sequence);
        if self.answered.len() == ANSWERED_MAX {
            self.answered.pop_front();
        }
        self.answered.push_back(sequence);
    }
}
