//! Unanswered requests, and when each is sent again.

use tributary_wire::Sequence;
use tributary_wire::frame::RetransmitState;

use super::pending::{Pending, Repeat};
use super::{LowerEnd, Reachability, State};
use crate::{Carrier, Time};

/// The longest distance between two repeats of one request.
pub(super) const REPEAT_NS_MAX: u64 = 100_000_000;

/// Repeats in a row, with no datagram received between, after which a request goes over the link.
pub(super) const SILENT_REPEATS_MAX: u8 = 8;

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
            had_fast_retransmit: false,
            unanswered: 0,
        });
        match before {
            None => self.pending_count += 1,
            // A place is used again only when its request is answered or no longer needs an answer.
            Some(before) => self.due_count -= usize::from(before.is_due),
        }
        self.set_earlier(due);
    }

    /// A result has come. Returns a decision about reachability, if this makes one.
    pub(crate) fn on_result(
        &mut self,
        now: Time,
        carrier: Carrier,
        sequence: Sequence,
        retransmit: RetransmitState,
    ) -> Option<Reachability> {
        if self.pending_count == 0 {
            return None;
        }
        let mut decided = None;
        if let Some(done) = self.take(sequence) {
            // Karn's algorithm: the answer to a repeated request does not measure a round trip.
            if carrier == Carrier::Datagram && done.attempt == 0 {
                self.round_trip.sample_result(now.since_ns(done.first_sent));
            }
            if carrier == Carrier::Link && done.due.is_none() {
                decided = self.on_silent_answer(now, &done);
            }
        }
        // A result over the link may overtake a datagram that is not lost.
        if carrier != Carrier::Link {
            let end = Sequence(sequence.0.wrapping_sub(u32::from(retransmit.behind)));
            self.fast_retransmit_before(end);
        }
        decided
    }

    /// The parent has acked a request: it does not have the result yet.
    pub(crate) fn on_ack(&mut self, now: Time, sequence: Sequence, attempt: u8) {
        self.stats.acks += 1;
        let Some(pending) = self.find(sequence) else { return };
        let sent_at = match attempt {
            _ if attempt == pending.attempt => pending.last_sent,
            0 => pending.first_sent,
            _ => return,
        };
        self.round_trip.sample(now.since_ns(sent_at));
    }

    /// The parent has nacked a request: it has a later one, and not this one.
    pub(crate) fn on_nack(&mut self, sequence: Sequence) {
        let place = self.place(sequence);
        if self.find(sequence).is_some() {
            self.fast_retransmit(place);
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
        let is_unanswered = self.datagram_at.is_none_or(|at| at < pending.last_sent);
        let is_silent = is_unanswered && pending.unanswered >= SILENT_REPEATS_MAX;
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
        let has_datagram = self.datagram_at.is_some_and(|at| at >= pending.last_sent);
        pending.unanswered = if has_datagram { 0 } else { pending.unanswered.saturating_add(1) };
        pending.attempt = repeat.attempt;
        pending.last_sent = now;
        if repeat.carrier == Carrier::Link {
            // The link is reliable, so no timer is needed.
            pending.due = None;
            self.stats.by_link += 1;
            return;
        }
        pending.interval_ns = (2 * pending.interval_ns).min(REPEAT_NS_MAX);
        let due = now.after_ns(pending.interval_ns);
        pending.due = Some(due);
        self.set_earlier(due);
    }

    /// The parent has every result before this number, so those that have not come were lost.
    fn fast_retransmit_before(&mut self, end: Sequence) {
        if self.pending_count == 0 {
            return;
        }
        for place in 0..self.pending.len() {
            let Some(pending) = &self.pending[place] else { continue };
            if (1..1 << 31).contains(&end.distance_from(pending.sequence)) {
                self.fast_retransmit(place);
            }
        }
    }

    fn fast_retransmit(&mut self, place: usize) {
        let Some(pending) = &mut self.pending[place] else { return };
        if pending.is_due || pending.had_fast_retransmit || pending.due.is_none() {
            return;
        }
        pending.had_fast_retransmit = true;
        pending.is_due = true;
        self.due_count += 1;
        self.stats.fast_retransmits += 1;
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
