//! A link that injects faults by a seed: the same seed and calls give the same faults.
//!
//! Delays, cuts and corrupts the frames that are sent. It never drops or reorders frames, because
//! real links never do: a frame is delayed, or the link breaks. There is no clock: a delay is
//! counted in calls. Only headers are corrupted, because payloads have no checksum of their own and
//! rely on the checksum of TCP.

use std::os::fd::{AsFd, BorrowedFd};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_wire::frame::HEADER_BYTES;

use crate::link::check_announced;
use crate::{Armed, Frame, Inject, Link, ReceiveError, SendError, Sent};

/// How often each fault happens. Rates are per million frames sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FaultPlan {
    /// Seed of the generator that picks frames and details.
    pub seed: u64,
    /// Frames that are delayed; the frames behind them wait.
    pub delays_per_million: u32,
    /// Calls that a delay lasts, at most.
    pub delay_calls_max: u32,
    /// Frames in the middle of which the link is closed.
    pub cuts_per_million: u32,
    /// Frames with one bit of their header flipped.
    pub corruptions_per_million: u32,
}

/// What happens to one frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Delayed { calls: u32 },
    Cut { after_bytes: usize },
    Corrupted { bit: usize },
}

/// A link that injects the faults of a [`FaultPlan`].
pub struct FaultyLink<L> {
    inner: L,
    plan: FaultPlan,
    random: Pcg64,
    /// The fate of the frame that was last offered and not taken.
    fate: Option<Fate>,
    /// A delayed frame; in use while `delay_calls_left` is not `None`.
    frame: Vec<u8>,
    delay_calls_left: Option<u32>,
    lacked_room: bool,
    cut: bool,
    /// Cut, or shut down by its owner.
    closed: bool,
}

impl<L: Inject> FaultyLink<L> {
    /// Wraps `inner`.
    pub fn new(inner: L, plan: FaultPlan) -> Self {
        let frame = Vec::with_capacity(HEADER_BYTES + inner.payload_max_bytes() as usize);
        let random = Pcg64::seed_from_u64(plan.seed);
        Self {
            inner,
            plan,
            random,
            fate: None,
            frame,
            delay_calls_left: None,
            lacked_room: false,
            cut: false,
            closed: false,
        }
    }

    /// Whether a cut has happened.
    #[must_use]
    pub const fn is_cut(&self) -> bool {
        self.cut
    }

    fn draw(&mut self, frame_bytes: usize) -> Fate {
        let plan = self.plan;
        let drawn = self.random.random_range(0..1_000_000_u32);
        let cuts_end = plan.cuts_per_million;
        let corruptions_end = cuts_end.saturating_add(plan.corruptions_per_million);
        let delays_end = corruptions_end.saturating_add(plan.delays_per_million);
        if drawn < cuts_end {
            Fate::Cut { after_bytes: self.random.random_range(0..frame_bytes) }
        } else if drawn < corruptions_end {
            Fate::Corrupted { bit: self.random.random_range(0..8 * HEADER_BYTES) }
        } else if drawn < delays_end {
            Fate::Delayed { calls: self.random.random_range(0..=plan.delay_calls_max) }
        } else {
            Fate::Sent
        }
    }

    /// Lets one call's worth of a delay pass, and sends the frame whose delay is over.
    fn pass_delay(&mut self) -> Result<Sent, SendError> {
        let Some(calls_left) = self.delay_calls_left else { return Ok(Sent::Taken) };
        self.delay_calls_left = Some(calls_left.saturating_sub(1));
        if calls_left > 0 || self.inner.inject(&self.frame)? == Sent::Full {
            return Ok(Sent::Full);
        }
        self.delay_calls_left = None;
        Ok(Sent::Taken)
    }

    fn suffer(
        &mut self,
        fate: Fate,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<Sent, SendError> {
        if fate == Fate::Sent {
            return self.inner.send(header, payload);
        }
        self.frame.clear();
        self.frame.extend_from_slice(header);
        self.frame.extend_from_slice(payload);
        match fate {
            Fate::Sent => {}
            Fate::Delayed { calls } => self.delay_calls_left = Some(calls),
            Fate::Corrupted { bit } => {
                self.frame[bit / 8] ^= 1 << (bit % 8);
                return self.inner.inject(&self.frame);
            }
            Fate::Cut { after_bytes } => {
                if self.inner.inject(&self.frame[..after_bytes])? == Sent::Full {
                    return Ok(Sent::Full);
                }
                self.cut = true;
                self.shutdown();
                return Err(SendError::Closed);
            }
        }
        Ok(Sent::Taken)
    }

    /// Whether room has appeared since `send` said `Full` because of a delay. Reported once.
    fn has_regained_room(&mut self) -> bool {
        let regained = self.lacked_room && self.delay_calls_left.is_none();
        self.lacked_room &= !regained;
        regained
    }
}

impl<L: AsFd> AsFd for FaultyLink<L> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inner.as_fd()
    }
}

impl<L: Inject> Link for FaultyLink<L> {
    fn send(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError> {
        check_announced(header, payload, self.inner.payload_max_bytes())?;
        if self.closed {
            return Err(SendError::Closed);
        }
        if self.pass_delay()? == Sent::Full {
            self.lacked_room = true;
            return Ok(Sent::Full);
        }
        let fate = match self.fate {
            Some(fate) => fate,
            None => self.draw(HEADER_BYTES + payload.len()),
        };
        let sent = self.suffer(fate, header, payload)?;
        self.fate = (sent == Sent::Full).then_some(fate);
        Ok(sent)
    }

    fn flush(&mut self) -> Result<Sent, SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        if self.pass_delay()? == Sent::Full {
            return Ok(Sent::Full);
        }
        self.inner.flush()
    }

    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        // A failure here repeats in the next `send` or `flush`.
        let _ = self.pass_delay();
        self.inner.receive()
    }

    fn release(&mut self) {
        self.inner.release();
    }

    fn is_ready(&mut self) -> bool {
        let _ = self.pass_delay();
        self.has_regained_room() || self.inner.is_ready()
    }

    fn arm(&mut self) -> Armed {
        // Delays end by calls, so nobody would wake a sleeper when a delay is over.
        if self.is_ready() || self.delay_calls_left.is_some() {
            return Armed::Ready;
        }
        self.inner.arm()
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }

    fn wants_write(&self) -> bool {
        self.inner.wants_write()
    }

    fn payload_max_bytes(&self) -> u32 {
        self.inner.payload_max_bytes()
    }

    fn shutdown(&mut self) {
        self.closed = true;
        self.delay_calls_left = None;
        self.inner.shutdown();
    }
}

impl<L: Inject> Inject for FaultyLink<L> {
    fn inject(&mut self, bytes: &[u8]) -> Result<Sent, SendError> {
        if self.closed {
            return Err(SendError::Closed);
        }
        if self.pass_delay()? == Sent::Full {
            self.lacked_room = true;
            return Ok(Sent::Full);
        }
        self.inner.inject(bytes)
    }
}
