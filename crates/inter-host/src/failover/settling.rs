//! The loss of a tree, settled over direct links: where everyone stands, who supplies what, and what is
//! computed again.
//!
//! Owns the execution of one settlement at one host. What is to be done, and in which order, says the
//! [`Settler`], the same at all hosts.

use std::ops::Range;

use tributary_algorithms::{Algorithm, Collective};
use tributary_protocol::failover::settler::{Settler, Task};
use tributary_protocol::failover::{Action, Cut, Receivers, Step};
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{EndpointId, OperationNumber};

use super::pieces::{Piece, broadcast, gather_bits};
use super::substitute::Substitute;
use crate::direct::DirectLinks;
use crate::operation::{InterHost, InterHostOperation, stream_part_bytes};
use crate::tree::{CutOff, Running};

/// A settlement under way.
pub(super) struct Settling {
    here: CutOff,
    settler: Settler,
    phase: Phase,
    /// Every host's standing, as bytes, in the exchange.
    exchanged: Vec<u8>,
    /// What a step supplies, or combines at hosts that have only the tail left.
    scratch: Vec<u8>,
}

enum Phase {
    /// Everybody has to learn that there is something to settle.
    Call,
    Exchange,
    /// Between two tasks.
    Next,
    Supply {
        from: u32,
        segments: Range<u32>,
    },
    /// Combines a part of the vector anew.
    Redo(Substitute),
    /// The same where this host has completed the operation, from what it kept.
    RedoFromTail,
}

/// What is left of the operation that was under way here.
pub(super) enum Remainder {
    /// No operation was under way.
    NoOperation,
    /// It is complete.
    None,
    /// It goes on from this byte of its vector.
    FromByte(usize),
}

impl Settling {
    pub(super) fn new(here: CutOff, window: u16) -> Self {
        let settler = Settler::new(here.standing.clone(), window);
        let (exchanged, scratch) = (Vec::new(), Vec::new());
        Self { here, settler, phase: Phase::Next, exchanged, scratch }
    }

    /// Whether no operation was under way here.
    pub(super) fn has_no_operation(&self) -> bool {
        self.here.running.is_none()
    }

    /// Speaks to the others for the first time.
    pub(super) fn begin(&mut self, links: &mut DirectLinks) -> Result<(), Abort> {
        let first = self.settler.poll_task();
        debug_assert_eq!(first, Task::Call, "nobody can be asked before");
        self.call(links)
    }

    /// More of the source may be read.
    pub(super) fn make_ready(&mut self, ready_bytes: usize) {
        if let Some(running) = &mut self.here.running {
            running.ready_bytes = ready_bytes;
        }
        if let Phase::Redo(substitute) = &mut self.phase {
            substitute.make_ready(ready_bytes);
        }
    }

    /// How much of the result is in place.
    pub(super) fn received_bytes(&self) -> usize {
        let Some(running) = &self.here.running else { return 0 };
        // What comes before a part that is combined anew is in place by then.
        if let Phase::Redo(substitute) = &self.phase {
            return substitute.done_bytes;
        }
        let complete = &self.settler.standing().complete;
        let cut = self.here.cut.map_or(0, |cut| cut.bytes(&(0..complete.prefix)).end);
        running.piece.start + cut
    }

    /// Goes as far as it can. What is left, once all is settled.
    pub(super) fn advance(&mut self, links: &mut DirectLinks) -> Result<Option<Remainder>, Abort> {
        loop {
            let is_over = match &mut self.phase {
                Phase::Next => true,
                Phase::Redo(substitute) => substitute.advance(links)?,
                _ => links.poll()?,
            };
            if !is_over {
                return Ok(None);
            }
            match std::mem::replace(&mut self.phase, Phase::Next) {
                Phase::Call => links.end_alarm(),
                Phase::Exchange => self.decide(links.me())?,
                Phase::Supply { from, segments } => self.take(from, links.me(), &segments),
                Phase::Next | Phase::Redo(_) | Phase::RedoFromTail => {}
            }
            match self.settler.poll_task() {
                Task::Call => self.call(links)?,
                Task::Exchange => self.exchange(links)?,
                Task::Step(step) => self.start(step, links)?,
                Task::Over => return Ok(Some(self.remainder())),
            }
        }
    }

    fn call(&mut self, links: &mut DirectLinks) -> Result<(), Abort> {
        self.phase = Phase::Call;
        self.scratch = vec![0];
        // SAFETY: the scratch stays as it is until the operation is over.
        unsafe { links.start(&broadcast(0, &mut self.scratch, Algorithm::Linear)) }
    }

    fn exchange(&mut self, links: &mut DirectLinks) -> Result<(), Abort> {
        let slot_bytes = self.settler.slot_bytes();
        self.exchanged = vec![0; slot_bytes * links.hosts() as usize];
        let first = slot_bytes * links.me() as usize;
        self.settler.write_slot(&mut self.exchanged[first..first + slot_bytes]);
        self.phase = Phase::Exchange;
        // SAFETY: what is exchanged stays where it is until the operation is over.
        unsafe { links.start(&gather_bits(&mut self.exchanged)) }
    }

    /// From where all stand, what is to be done.
    fn decide(&mut self, me: u32) -> Result<(), Abort> {
        let disagreement = Abort { reason: AbortReason::Disagreement, at_fault: EndpointId(me) };
        let here = &self.here;
        let whole = |number| {
            let (whole, cut) = whole(here, number)?;
            let receivers = match whole.collective {
                Collective::Reduce { root } => Receivers::Member(root as usize),
                _ => Receivers::All,
            };
            Some((cut.segments, receivers))
        };
        self.settler.decide(&self.exchanged, whole).map_err(|_| disagreement)
    }

    fn start(&mut self, step: Step, links: &mut DirectLinks) -> Result<(), Abort> {
        let operation = self.settler.finished_operation().expect("only what is finished has steps");
        let (whole, cut) = whole(&self.here, operation).expect("known since it was decided");
        let bytes = cut.bytes(&step.segments);
        if bytes.is_empty() {
            return Ok(());
        }
        match step.action {
            Action::Supply { from } => {
                let from = from as u32;
                self.scratch.clear();
                self.scratch.resize(bytes.len(), 0);
                if from == links.me() {
                    self.copy_results(operation, &bytes, cut);
                }
                self.phase = Phase::Supply { from, segments: step.segments };
                // SAFETY: the scratch stays as it is until the operation is over.
                unsafe { links.start(&broadcast(from, &mut self.scratch, Algorithm::Binomial)) }
            }
            Action::Redo if self.settler.is_behind() => {
                let running = self.here.running.as_ref().expect("it is under way");
                let first = running.piece.start;
                let part = first + bytes.start..first + bytes.end;
                let part_bytes = match running.is_stream && !self.settler.has_some_completed() {
                    true => stream_part_bytes(cut.segment_bytes, cut.window),
                    false => part.len(),
                };
                self.phase = Phase::Redo(Substitute::part_of(running, part, part_bytes));
                Ok(())
            }
            Action::Redo => {
                let tail = self.here.retained.tail(operation).expect("it has completed it");
                let first = cut.bytes(&cut.tail()).start;
                self.scratch.clear();
                self.scratch.extend_from_slice(&tail.bytes[bytes.start - first..bytes.end - first]);
                self.phase = Phase::RedoFromTail;
                let piece = Piece::within(&mut self.scratch);
                // SAFETY: as above.
                unsafe { links.start(&super::pieces::operation_of(&whole, piece)) }
            }
        }
    }

    /// Copies results that this host has into the scratch.
    fn copy_results(&mut self, operation: OperationNumber, bytes: &Range<usize>, cut: Cut) {
        if self.settler.is_behind() {
            let running = self.here.running.as_ref().expect("it is under way");
            let has = match running.spec.receives {
                true => running.operation.target.cast_const(),
                // The root of a broadcast has sent what it has.
                false => running.operation.source,
            };
            // SAFETY: the bytes lie within the operation's vector, which is its own until the engine
            // learns that it is over.
            let results = unsafe {
                let first = has.add(running.piece.start + bytes.start);
                std::slice::from_raw_parts(first, bytes.len())
            };
            self.scratch.copy_from_slice(results);
        } else {
            let tail = self.here.retained.tail(operation).expect("it has completed it");
            let first = cut.bytes(&cut.tail()).start;
            self.scratch.copy_from_slice(&tail.bytes[bytes.start - first..bytes.end - first]);
        }
    }

    /// Places the results that were supplied, where this host lacks them.
    fn take(&mut self, from: u32, me: u32, segments: &Range<u32>) {
        let Some((running, cut)) = self.here.running.as_ref().zip(self.here.cut) else { return };
        if from == me || !running.spec.receives {
            return;
        }
        let first = cut.bytes(segments).start;
        for segment in segments.clone() {
            if self.settler.lacks(segment) {
                let bytes = cut.bytes(&(segment..segment + 1));
                let supplied = &self.scratch[bytes.start - first..bytes.end - first];
                running.fill(bytes, supplied);
            }
        }
    }

    fn remainder(&self) -> Remainder {
        let Some(running) = &self.here.running else { return Remainder::NoOperation };
        match self.settler.is_behind() {
            true if running.piece.end == running.len_bytes => Remainder::None,
            true => Remainder::FromByte(running.piece.end),
            false => Remainder::FromByte(running.piece.start),
        }
    }

    /// What had been under way here.
    pub(super) fn into_running(self) -> Option<Running> {
        self.here.running
    }
}

/// An operation as this host knows it; none if it knows nothing of it, which no member of the group can.
fn whole(here: &CutOff, number: OperationNumber) -> Option<(InterHostOperation, Cut)> {
    if here.standing.operation == number {
        return Some((here.running.as_ref()?.operation, here.cut?));
    }
    let tail = here.retained.tail(number)?;
    Some((*tail.operation, tail.cut))
}
