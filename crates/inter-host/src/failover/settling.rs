//! The loss of a tree, settled over direct links: where everyone stands, who supplies what, and what is
//! computed again.
//!
//! Owns the run of one settlement at one host. What is to be done follows from
//! [`tributary_protocol::failover`], the same at all hosts.

use std::ops::Range;

use tributary_algorithms::{Algorithm, Collective};
use tributary_protocol::failover::{
    Action, Cut, Receivers, Segments, Settlement, Standing, Step, settle, steps,
};
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
    /// Most segments that may be in flight, which bounds what a standing tells of.
    window: u16,
    phase: Phase,
    /// Every host's standing, as bytes, in the exchange.
    exchanged: Vec<u8>,
    standings: Vec<Standing>,
    /// The operation that is finished, and its steps.
    operation: OperationNumber,
    steps: std::vec::IntoIter<Step>,
    /// What a step supplies, or combines at hosts that have only the tail left.
    scratch: Vec<u8>,
}

enum Phase {
    /// Everybody has to learn that there is something to settle.
    Begin,
    Exchange,
    /// Between two steps.
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
pub(super) enum Left {
    /// There was none.
    Nothing,
    /// It is complete.
    Complete,
    /// It goes on from this byte of its vector.
    From(usize),
}

impl Settling {
    pub(super) fn new(here: CutOff, window: u16) -> Self {
        Self {
            here,
            window,
            phase: Phase::Begin,
            exchanged: Vec::new(),
            standings: Vec::new(),
            operation: OperationNumber::FIRST,
            steps: Vec::new().into_iter(),
            scratch: Vec::new(),
        }
    }

    /// Speaks to the others for the first time.
    pub(super) fn begin(&mut self, links: &mut DirectLinks) -> Result<(), Abort> {
        self.scratch = vec![0];
        // SAFETY: the scratch stays as it is until the operation is over.
        unsafe { links.start(&broadcast(0, &mut self.scratch, Algorithm::Linear)) }
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
        let complete = &self.here.standing.complete;
        let cut = self.here.cut.map_or(0, |cut| cut.bytes(&(0..complete.prefix)).end);
        running.piece.start + cut
    }

    /// Goes as far as it can. What is left, once all is settled.
    pub(super) fn advance(&mut self, links: &mut DirectLinks) -> Result<Option<Left>, Abort> {
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
                Phase::Begin => {
                    links.end_alarm();
                    self.exchange(links)?;
                }
                Phase::Exchange => {
                    if let Some(left) = self.decide(links)? {
                        return Ok(Some(left));
                    }
                }
                Phase::Supply { from, segments } => self.take(from, links.me(), &segments),
                Phase::Next | Phase::Redo(_) | Phase::RedoFromTail => match self.steps.next() {
                    Some(step) => self.start(step, links)?,
                    None => return Ok(Some(self.left())),
                },
            }
        }
    }

    fn exchange(&mut self, links: &mut DirectLinks) -> Result<(), Abort> {
        let slot_bytes = slot_bytes(self.window);
        self.exchanged = vec![0; slot_bytes * links.hosts() as usize];
        let first = slot_bytes * links.me() as usize;
        write(&self.here.standing, &mut self.exchanged[first..first + slot_bytes]);
        self.phase = Phase::Exchange;
        // SAFETY: what is exchanged stays where it is until the operation is over.
        unsafe { links.start(&gather_bits(&mut self.exchanged)) }
    }

    /// From where all stand, what is to be done; what is left, if nothing is.
    fn decide(&mut self, links: &mut DirectLinks) -> Result<Option<Left>, Abort> {
        let disagree =
            |host: u32| Abort { reason: AbortReason::Disagreement, at_fault: EndpointId(host) };
        self.standings = self.exchanged.chunks_exact(slot_bytes(self.window)).map(read).collect();
        match settle(&self.standings).map_err(|_| disagree(links.me()))? {
            Settlement::Restart(_) => return Ok(Some(self.left())),
            Settlement::Finish(operation) => self.operation = operation,
        }
        let (whole, cut) = self.whole().ok_or_else(|| disagree(links.me()))?;
        let receivers = match whole.collective {
            Collective::Reduce { root } => Receivers::Member(root as usize),
            _ => Receivers::All,
        };
        self.steps = steps(&self.standings, self.operation, cut.segments, receivers).into_iter();
        Ok(None)
    }

    /// Whether this host has yet to complete the operation.
    fn is_behind(&self) -> bool {
        self.here.standing.operation == self.operation
    }

    /// The operation that is finished, as this host knows it; none if it knows nothing of it, which no
    /// member of the group can.
    fn whole(&self) -> Option<(InterHostOperation, Cut)> {
        if self.is_behind() {
            return Some((self.here.running.as_ref()?.operation, self.here.cut?));
        }
        let tail = self.here.retained.tail(self.operation)?;
        Some((*tail.operation, tail.cut))
    }

    fn start(&mut self, step: Step, links: &mut DirectLinks) -> Result<(), Abort> {
        let (whole, cut) = self.whole().expect("known since it was decided");
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
                    self.copy_results(&bytes, cut);
                }
                self.phase = Phase::Supply { from, segments: step.segments };
                // SAFETY: the scratch stays as it is until the operation is over.
                unsafe { links.start(&broadcast(from, &mut self.scratch, Algorithm::Binomial)) }
            }
            Action::Redo if self.is_behind() => {
                let running = self.here.running.as_ref().expect("it is under way");
                let first = running.piece.start;
                let part = first + bytes.start..first + bytes.end;
                // Who has completed the operation shows that all of it was ready everywhere.
                let is_ready = self.standings.iter().any(|it| it.operation != self.operation);
                let part_bytes = match running.is_stream && !is_ready {
                    true => stream_part_bytes(cut.segment_bytes, cut.window),
                    false => part.len(),
                };
                self.phase = Phase::Redo(Substitute::part_of(running, part, part_bytes));
                Ok(())
            }
            Action::Redo => {
                let tail = self.here.retained.tail(self.operation).expect("it has completed it");
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
    fn copy_results(&mut self, bytes: &Range<usize>, cut: Cut) {
        if self.is_behind() {
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
            let tail = self.here.retained.tail(self.operation).expect("it has completed it");
            let first = cut.bytes(&cut.tail()).start;
            self.scratch.copy_from_slice(&tail.bytes[bytes.start - first..bytes.end - first]);
        }
    }

    /// Places the results that were supplied, where this host lacks them.
    fn take(&mut self, from: u32, me: u32, segments: &Range<u32>) {
        let Some((running, cut)) = self.here.running.as_ref().zip(self.here.cut) else { return };
        if from == me || !self.is_behind() || !running.spec.receives {
            return;
        }
        let first = cut.bytes(segments).start;
        for segment in segments.clone() {
            if !self.here.standing.complete.contains(segment) {
                let bytes = cut.bytes(&(segment..segment + 1));
                let supplied = &self.scratch[bytes.start - first..bytes.end - first];
                running.fill(bytes, supplied);
            }
        }
    }

    fn left(&self) -> Left {
        let Some(running) = &self.here.running else { return Left::Nothing };
        let is_finished = self.is_behind() && self.has_finished();
        match is_finished {
            true if running.piece.end == running.len_bytes => Left::Complete,
            true => Left::From(running.piece.end),
            false => Left::From(running.piece.start),
        }
    }

    /// Whether an operation was finished, and not only decided to be started again.
    fn has_finished(&self) -> bool {
        matches!(settle(&self.standings), Ok(Settlement::Finish(_)))
    }

    /// What had been under way here.
    pub(super) fn into_running(self) -> Option<Running> {
        self.here.running
    }
}

/// Bytes of one standing: the operation's number, whether it is started, the prefix, and a bit for each
/// segment of the window. All numbers are little-endian.
fn slot_bytes(window: u16) -> usize {
    FIXED_BYTES + usize::from(window).div_ceil(8)
}

const FIXED_BYTES: usize = 9;

fn write(standing: &Standing, slot: &mut [u8]) {
    let (fixed, bits) = slot.split_at_mut(FIXED_BYTES);
    fixed[..4].copy_from_slice(&standing.operation.0.to_le_bytes());
    fixed[4] = u8::from(standing.is_started);
    fixed[5..].copy_from_slice(&standing.complete.prefix.to_le_bytes());
    for (index, is_complete) in standing.complete.window.iter().enumerate() {
        bits[index / 8] |= u8::from(*is_complete) << (index % 8);
    }
}

fn read(slot: &[u8]) -> Standing {
    let (fixed, bits) = slot.split_at(FIXED_BYTES);
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Standing {
        operation: OperationNumber(number(&fixed[..4])),
        is_started: fixed[4] == 1,
        complete: Segments {
            prefix: number(&fixed[5..]),
            window: (0..8 * bits.len()).map(|at| bits[at / 8] >> (at % 8) & 1 == 1).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_standing_arrives_as_it_was_told() {
        for window in [0, 1, 7, 8, 9, 64] {
            let standing = Standing {
                operation: OperationNumber(u32::MAX - 1),
                is_started: window % 2 == 0,
                complete: Segments {
                    prefix: 70_000,
                    window: (0..window).map(|at| at % 3 == 1).collect(),
                },
            };
            let mut slot = vec![0; slot_bytes(window)];
            write(&standing, &mut slot);
            let mut told = read(&slot);
            assert!(told.complete.window.drain(usize::from(window)..).all(|it| !it));
            assert_eq!(told, standing);
        }
    }
}
