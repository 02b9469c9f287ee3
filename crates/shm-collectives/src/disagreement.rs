//! Ranks that call different operations: found by those that wait, and never waited out.
//!
//! A rank that waits for another's part looks for signs that the part will never come. Each is a proof, for every rank
//! fills its slots in the order of its operations, and all ranks count steps alike:
//!
//! 1. The slot is filled, in this step, by another call.
//! 2. The other has filled a slot of a step that this rank has yet to come to, and not the one that it waits for.
//! 3. The other waits, too, at the same place in the order of steps, in another call.
//! 4. The other waits at a later place, and has not filled the slot that this rank waits for.

use super::call::{Call, CallKind, EXACT_BYTES};
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::{EXCHANGE_RING, RINGS};
use super::sync::Ordering;

/// Says where in the order of steps this rank waits, and in which call.
pub(super) fn say_waiting(rings: &Rings) {
    let word = rings.call().flag(rings.position());
    // Release: pairs with the Acquire in `call_while_waiting`: what this rank has published comes first.
    rings.segment.control(rings.local_rank).waits_in.store(word, Ordering::Release);
}

/// The other call of the rank that is waited for, if the wait can never end.
pub(super) fn find(rings: &Rings, awaited: Awaited) -> Option<Call> {
    // A slot that the other has not read yet says nothing of what it fills.
    let in_slots = match awaited.event {
        AwaitedEvent::Filled => call_in_slot(rings, awaited).or_else(|| call_ahead(rings, awaited)),
        AwaitedEvent::Done => None,
    };
    let call = in_slots.or_else(|| call_while_waiting(rings, awaited))?;
    // It may have done its part meanwhile, and gone on: what was read has made that visible.
    (!rings.is_met(awaited)).then_some(call)
}

/// The length of the broadcast that this rank waits for and that does not come, because the root's is shorter than this
/// rank's: MPI's own broadcasts carry that out. None if this rank does something else, or the root does.
pub(super) fn shorter_broadcast(
    rings: &Rings,
    awaited: Awaited,
    from: u32,
    len_bytes: usize,
) -> Option<usize> {
    let history = rings.history_before();
    let length_in = |call: Call| {
        let at_root = call.broadcast_bytes(from, history);
        let is_it = call == Call::new(CallKind::Broadcast, 0, at_root, from).behind(history);
        (is_it && (1..len_bytes.min(EXACT_BYTES)).contains(&at_root)).then_some(at_root)
    };
    // A root does not wait: it may have gone on, and filled slots of other rings since.
    let mut calls =
        (0..RINGS.len()).filter_map(|ring| call_of(rings, ring, from, rings.step(ring)));
    calls.find_map(length_in).filter(|_| awaited.peer == from && !rings.is_met(awaited))
}

fn call_in_slot(rings: &Rings, awaited: Awaited) -> Option<Call> {
    call_of(rings, awaited.ring, awaited.peer, awaited.step).filter(|call| *call != rings.call())
}

fn call_ahead(rings: &Rings, awaited: Awaited) -> Option<Call> {
    let others = (0..RINGS.len()).filter(|ring| *ring != awaited.ring);
    let is_used = |ring: &usize| rings.ranks == 2 || *ring != EXCHANGE_RING;
    let mut calls = others
        .filter(is_used)
        .filter_map(|ring| call_of(rings, ring, awaited.peer, rings.step(ring)));
    calls.next()
}

fn call_while_waiting(rings: &Rings, awaited: Awaited) -> Option<Call> {
    // Acquire: pairs with the Release in `say_waiting`.
    let word = rings.segment.control(awaited.peer).waits_in.load(Ordering::Acquire);
    let position = rings.position();
    if let Some(call) = Call::in_flag(word, position) {
        return (call != rings.call()).then_some(call);
    }
    let is_later = word != 0 && Call::is_of_later_step(word, position);
    (is_later && awaited.event == AwaitedEvent::Filled).then(|| Call::of_flag(word))
}

/// What `peer` called when it filled its slot of `step`, if it has.
fn call_of(rings: &Rings, ring: usize, peer: u32, step: u64) -> Option<Call> {
    // Acquire: as in `Rings::is_filled`.
    Call::in_flag(rings.segment.flag(ring, peer, step).load(Ordering::Acquire), step)
}
