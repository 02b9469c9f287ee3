//! The requests that have no answer yet, and when each is sent again.

use tributary_wire::Sequence;
use tributary_wire::frame::Trail;

use super::{LowerEnd, Reach, State};
use crate::{Carrier, Time};

/// The longest distance between two repeats of one request.
pub(super) const REPEAT_NS_MAX: u64 = 100_000_000;

/// Repeats in a row, with not one datagram heard meanwhile, after which a request goes over the
/// link.
pub(super) const SILENT_REPEATS_MAX: u8 = 8;

/// A request that has been sent and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) sequence: Sequence,
    pub(super) first_sent: Time,
    pub(super) last_sent: Time,
    /// When it is repeated unless something happens; never, once it went over the link.
    pub(super) due: Option<Time>,
    /// The last distance between two attempts.
    pub(super) interval_ns: u64,
    pub(super) attempt: u8,
    /// Waits to be sent again.
    pub(super) is_due: bool,
    /// Evidence of loss is taken once: what follows is the timer's.
    pub(super) was_hurried: bool,
    /// Attempts in a row that no datagram followed.
    pub(super) unheard: u8,
}

/// A request to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) sequence: Sequence,
    pub(crate) attempt: u8,
    pub(crate) carrier: Carrier,
}

impl LowerEnd {
    /// A request has gone out as a datagram, for the first time.
    pub(crate) fn on_sent(&mut self, now: Time, sequence: Sequence) {
        let interval_ns = self.round_trip.timeout_ns();
        let due = now.after_ns(interval_ns);
        let place = self.place(sequence);
        let before = self.pending[place].replace(Pending {
            sequence,
            first_sent: now,
            last_sent: now,
            due: Some(due),
            interval_ns,
            attempt: 0,
            is_due: false,
            was_hurried: false,
            unheard: 0,
        });
        match before {
            None => self.pending_count += 1,
            // A place is used again only when its request is answered, or has become pointless.
            Some(before) => self.due_count -= usize::from(before.is_due),
        }
        self.set_earlier(due);
    }

    /// A result has come. What this decides, if it decides anything.
    pub(crate) fn on_result(
        &mut self,
        now: Time,
        carrier: Carrier,
        sequence: Sequence,
        trail: Trail,
    ) -> Option<Reach> {
        if self.pending_count == 0 {
            return None;
        }
        let mut decided = None;
        if let Some(done) = self.take(sequence) {
            // Karn's rule: a repeated request's answer tells no round trip.
            if carrier == Carrier::Datagram && done.attempt == 0 {
                self.round_trip.sample_result(now.since_ns(done.first_sent));
            }
            if carrier == Carrier::Link && done.due.is_none() {
                decided = self.on_silent_answer(now, &done);
            }
        }
        // What the link carries may overtake a datagram that is not lost.
        if carrier != Carrier::Link {
            let end = Sequence(sequence.0.wrapping_sub(u32::from(trail.behind)));
            self.hurry_before(end);
        }
        decided
    }

    /// The parent has the request and not yet the result.
    pub(crate) fn on_held(&mut self, now: Time, sequence: Sequence, attempt: u8) {
        self.stats.held += 1;
        let Some(pending) = self.find(sequence) else { return };
        let sent_at = match attempt {
            _ if attempt == pending.attempt => pending.last_sent,
            0 => pending.first_sent,
            _ => return,
        };
        self.round_trip.sample(now.since_ns(sent_at));
    }

    /// The parent has a later request, and not this one.
    pub(crate) fn on_missing(&mut self, sequence: Sequence) {
        let place = self.place(sequence);
        if self.find(sequence).is_some() {
            self.hurry(place);
        }
    }

    pub(super) fn expire(&mut self, now: Time) {
        self.next_due = None;
        for pending in self.pending.iter_mut().flatten() {
            let Some(due) = pending.due else { continue };
            if pending.is_due {
                continue;
            }
            if due <= now {
                pending.is_due = true;
                self.due_count += 1;
                self.stats.timeouts += 1;
            } else if self.next_due.is_none_or(|earliest| due < earliest) {
                self.next_due = Some(due);
            }
        }
    }

    /// The next request to send again, if one is due.
    pub(crate) fn next_repeat(&self) -> Option<Repeat> {
        if self.due_count == 0 {
            return None;
        }
        let pending = self.pending.iter().flatten().find(|pending| pending.is_due)?;
        let is_unheard = self.heard_at.is_none_or(|heard| heard < pending.last_sent);
        let is_silent = is_unheard && pending.unheard >= SILENT_REPEATS_MAX;
        let is_by_link = is_silent || self.state != State::Open;
        let carrier = if is_by_link { Carrier::Link } else { Carrier::Datagram };
        let attempt = pending.attempt.saturating_add(1);
        Some(Repeat { sequence: pending.sequence, attempt, carrier })
    }

    /// The repeat has gone out.
    pub(crate) fn on_repeated(&mut self, now: Time, repeat: Repeat) {
        let place = self.place(repeat.sequence);
        let Some(pending) = &mut self.pending[place] else { return };
        debug_assert!(pending.is_due && pending.sequence == repeat.sequence);
        pending.is_due = false;
        self.due_count -= 1;
        let is_heard = self.heard_at.is_some_and(|heard| heard >= pending.last_sent);
        pending.unheard = if is_heard { 0 } else { pending.unheard.saturating_add(1) };
        pending.attempt = repeat.attempt;
        pending.last_sent = now;
        if repeat.carrier == Carrier::Link {
            // What the link takes arrives, or the link fails.
            pending.due = None;
            self.stats.by_link += 1;
            return;
        }
        pending.interval_ns = (2 * pending.interval_ns).min(REPEAT_NS_MAX);
        let due = now.after_ns(pending.interval_ns);
        pending.due = Some(due);
        self.set_earlier(due);
    }

    /// Every result before this number is at the parent; those that have not come were lost.
    fn hurry_before(&mut self, end: Sequence) {
        if self.pending_count == 0 {
            return;
        }
        for place in 0..self.pending.len() {
            let Some(pending) = &self.pending[place] else { continue };
            if (1..1 << 31).contains(&end.distance_from(pending.sequence)) {
                self.hurry(place);
            }
        }
    }

    fn hurry(&mut self, place: usize) {
        let Some(pending) = &mut self.pending[place] else { return };
        if pending.is_due || pending.was_hurried || pending.due.is_none() {
            return;
        }
        pending.was_hurried = true;
        pending.is_due = true;
        self.due_count += 1;
        self.stats.hurried += 1;
    }

    fn take(&mut self, sequence: Sequence) -> Option<Pending> {
        let place = self.place(sequence);
        self.find(sequence)?;
        let taken = self.pending[place].take()?;
        self.pending_count -= 1;
        self.due_count -= usize::from(taken.is_due);
        if self.pending_count == 0 {
            self.next_due = None;
        }
        Some(taken)
    }

    fn find(&self, sequence: Sequence) -> Option<&Pending> {
        self.pending[self.place(sequence)].as_ref().filter(|it| it.sequence == sequence)
    }

    fn place(&self, sequence: Sequence) -> usize {
        sequence.0 as usize & (self.pending.len() - 1)
    }

    fn set_earlier(&mut self, due: Time) {
        if self.next_due.is_none_or(|earliest| due < earliest) {
            self.next_due = Some(due);
        }
    }
}
