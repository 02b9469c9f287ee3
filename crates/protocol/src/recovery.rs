//! Loss recovery at the lower end of an edge, whose datagrams may be lost.
//!
//! Requests are idempotent and each has exactly one result, so the result is the acknowledgement,
//! and the sender repeats the request until it comes. This module serves an endpoint, and an aggregator
//! towards its parent, alike. It finds out whether datagrams arrive at all, measures the round-trip
//! time, and decides when each request is sent again and over what. It does not know what a request
//! says.
//!
//! A request is repeated
//!
//! - when its timer expires: first after the retransmission timeout of the edge ([`rtt`]), then at
//!   doubling intervals. A sibling that is late by `t` costs each child `log2(t / timeout)` repeats
//!   and as many acks. A result that is lost after a long wait is requested again after at most as
//!   long a wait;
//! - at once, when the parent sends a nack, or shows that it has the result although that has not
//!   arrived ([`tributary_wire::frame::RetransmitState::behind`]): a fast retransmit.
//!
//! If a request stays unanswered while no datagram arrives at all, it finally goes over the link.
//! If it is answered there, the edge has lost its datagrams and goes on without them. A parent that
//! merely stands still answers neither way, so the edge keeps its datagrams.

mod pending;
mod repeats;
mod rtt;

use alloc::boxed::Box;
use alloc::vec;
use core::num::NonZeroU16;

use tributary_wire::frame::Message;

use crate::{Carrier, Time};
use pending::Pending;
pub(crate) use pending::Repeat;
use rtt::RoundTrip;

/// Unanswered probes after which an edge has no datagrams; together they take 155 ms.
const PROBES_MAX: u8 = 5;
/// The first probe's time to be answered; doubles with each.
const PROBE_NS: u64 = 5_000_000;

/// Answers over the link to requests that no datagram answered, in a row and with no datagram
/// received between, after which the edge has no datagrams. One is not enough: a parent that stood
/// still and goes on may poll the link before its datagrams.
const SILENT_ANSWERS_MAX: u8 = 2;

/// Whether datagrams arrive: those of an edge, or those to a multicast address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reachability {
    /// They arrive. On an edge, in both directions: requests and results travel by datagram.
    Reachable,
    /// They do not arrive, or not any more. An edge goes on over its link.
    Unreachable,
}

/// Counters of loss recovery at one lower end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecoveryStats {
    /// Requests sent again because their timer ran out.
    pub timeouts: u64,
    /// Requests sent again at once because the parent gave evidence of a loss.
    pub fast_retransmits: u64,
    /// Acks: the parent has the request and not yet the result.
    pub acks: u64,
    /// Requests that went over the link because no datagram was answered.
    pub by_link: u64,
    /// The retransmission timeout now.
    pub timeout_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was offered to the parent.
    Unoffered,
    /// The offer was refused or the probes were not answered, or the edge has ended.
    Closed,
    /// Offered; the parent has not answered yet.
    Offered,
    Probing {
        attempt: u8,
        sent_at: Option<Time>,
        due: Time,
    },
    Open,
}

/// The lower end of an edge.
#[derive(Debug)]
pub(crate) struct LowerEnd {
    state: State,
    /// Longer segments go over the link.
    segment_max_bytes: usize,
    round_trip: RoundTrip,
    /// By sequence number modulo the length, a power of two.
    pending: Box<[Option<Pending>]>,
    pending_count: usize,
    due_count: usize,
    /// Earliest timer of a request.
    next_due: Option<Time>,
    /// When a datagram last came from the parent.
    datagram_at: Option<Time>,
    /// Answers over the link to requests that no datagram answered, and when the last came.
    silent_answers: u8,
    silent_answer_at: Time,
    stats: RecoveryStats,
}

impl LowerEnd {
    /// An end without datagrams, for up to `places` requests in flight.
    pub(crate) fn new(places: usize) -> Self {
        Self {
            state: State::Unoffered,
            segment_max_bytes: 0,
            round_trip: RoundTrip::default(),
            pending: vec![None; places.next_power_of_two()].into_boxed_slice(),
            pending_count: 0,
            due_count: 0,
            next_due: None,
            datagram_at: None,
            silent_answers: 0,
            silent_answer_at: Time(0),
            stats: RecoveryStats::default(),
        }
    }

    /// The parent is being told that this end takes datagrams. Segments longer than
    /// `segment_max_bytes` go over the link all the same.
    pub(crate) fn on_offering(&mut self, segment_max_bytes: u32) {
        self.state = State::Offered;
        self.segment_max_bytes = segment_max_bytes as usize;
    }

    /// Whether an offer may still be made. There is at most one.
    pub(crate) fn may_offer(&self) -> bool {
        self.state == State::Unoffered
    }

    /// Whether the parent's answer to an offer is awaited.
    pub(crate) fn is_offered(&self) -> bool {
        self.state == State::Offered
    }

    /// A datagram has come from the parent, whatever it says.
    pub(crate) fn on_datagram(&mut self, now: Time) {
        self.datagram_at = Some(now);
        self.silent_answers = 0;
    }

    /// The parent has said whether it takes datagrams. Returns a decision about reachability, if
    /// this makes one.
    pub(crate) fn on_answer(
        &mut self,
        now: Time,
        port: Option<NonZeroU16>,
    ) -> Option<Reachability> {
        if self.state != State::Offered {
            return None;
        }
        match port {
            Some(_) => {
                self.state = State::Probing { attempt: 0, sent_at: None, due: now };
                None
            }
            None => {
                self.state = State::Closed;
                Some(Reachability::Unreachable)
            }
        }
    }

    /// What carries a new request for a segment of this length. The result travels the same way, so
    /// the segment's length counts even if the request has no data.
    pub(crate) fn carrier(&self, segment_bytes: usize) -> Carrier {
        let is_datagram = self.state == State::Open && segment_bytes <= self.segment_max_bytes;
        if is_datagram { Carrier::Datagram } else { Carrier::Link }
    }

    /// Whether any answer is awaited.
    pub(crate) fn is_waiting(&self) -> bool {
        self.pending_count > 0 || matches!(self.state, State::Probing { .. })
    }

    pub(crate) fn stats(&self) -> RecoveryStats {
        RecoveryStats { timeout_ns: self.round_trip.timeout_ns(), ..self.stats }
    }

    /// The probe to send now, if one is.
    pub(crate) fn probe(&self) -> Option<Message> {
        match self.state {
            State::Probing { attempt, sent_at: None, .. } => Some(Message::Probe(attempt)),
            _ => None,
        }
    }

    /// The probe has been sent.
    pub(crate) fn on_probe_sent(&mut self, now: Time) {
        if let State::Probing { attempt, sent_at, due } = &mut self.state {
            *sent_at = Some(now);
            *due = now.after_ns(PROBE_NS << *attempt);
        }
    }

    /// The parent has received a probe. Returns a decision about reachability, if this makes one.
    pub(crate) fn on_probed(&mut self, now: Time, answered: u8) -> Option<Reachability> {
        let State::Probing { attempt, sent_at, .. } = self.state else { return None };
        if let Some(sent_at) = sent_at
            && attempt == answered
        {
            self.round_trip.sample(now.since_ns(sent_at));
        }
        self.state = State::Open;
        Some(Reachability::Reachable)
    }

    /// A request that no datagram answered was answered over the link.
    fn on_silent_answer(&mut self, now: Time, done: &Pending) -> Option<Reachability> {
        let has_datagram = self.datagram_at.is_some_and(|at| at >= done.last_sent);
        // Requests that waited at the same time count as one.
        let is_same = self.silent_answers > 0 && done.first_sent < self.silent_answer_at;
        if has_datagram || is_same || self.state != State::Open {
            return None;
        }
        self.silent_answers += 1;
        self.silent_answer_at = now;
        if self.silent_answers < SILENT_ANSWERS_MAX {
            return None;
        }
        self.fall_silent();
        Some(Reachability::Unreachable)
    }

    /// When [`LowerEnd::handle_timeout`] is due.
    pub(crate) fn poll_timeout(&self) -> Option<Time> {
        let probe = match self.state {
            State::Probing { sent_at: Some(_), due, .. } => Some(due),
            _ => None,
        };
        [probe, self.next_due].into_iter().flatten().min()
    }

    /// Marks the requests that are due. Returns a decision about reachability, if this makes one.
    pub(crate) fn handle_timeout(&mut self, now: Time) -> Option<Reachability> {
        if self.next_due.is_some_and(|due| due <= now) {
            self.expire(now);
        }
        let State::Probing { attempt, sent_at: Some(_), due } = self.state else { return None };
        if now < due {
            return None;
        }
        if attempt + 1 == PROBES_MAX {
            self.state = State::Closed;
            return Some(Reachability::Unreachable);
        }
        self.state = State::Probing { attempt: attempt + 1, sent_at: None, due };
        None
    }

    /// Forgets all requests and ends the use of datagrams.
    pub(crate) fn clear(&mut self) {
        self.pending.fill(None);
        (self.pending_count, self.due_count, self.next_due) = (0, 0, None);
        self.state = State::Closed;
    }

    /// Datagrams have stopped arriving: what was sent by datagram goes over the link.
    fn fall_silent(&mut self) {
        self.state = State::Closed;
        self.next_due = None;
        for place in 0..self.pending.len() {
            let Some(pending) = &mut self.pending[place] else { continue };
            if pending.due.is_some() && !pending.is_due {
                pending.is_due = true;
                self.due_count += 1;
            }
        }
    }
}

#[cfg(test)]
mod tests;
