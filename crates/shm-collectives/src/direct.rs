//! Long vectors from process to process, without a stop in the segment.
//!
//! An operation has two steps, both without data in the slots. In the first, the *opening*, each
//! rank publishes where its vectors are, and whether it can access the memory of all others and has
//! a core of its own; if one does not, all ranks stage this operation and all later ones
//! (`staged`). Then each rank does its part alone: of an allreduce, it reads its share of every
//! peer's source, piece by piece, into scratch memory that stays in its second-level cache, reduces
//! it with its own in rank order, and writes the result to every rank while it is still in the
//! cache. The second step, the *closing*, is a barrier: no rank uses its buffers again before all
//! are done with them.
//!
//! The kernel may refuse a rank what it granted before. So the closing says how far each rank has come, and what is
//! left of its part is staged by all: results that only it has are broadcast, and the rest of its share is reduced,
//! whose contributions nothing has overwritten. From then on all long vectors are staged.
//!
//! In place, a share's result overwrites contributions that only this rank ever reads, and has
//! read already.
//!
//! Bytes moved by each of two ranks for `n` bytes of allreduce: `n / 2` in, `n / 2` out, against
//! `n` in and `n` out of the segment when staged. Measured as a plain C program (two processes of
//! a 2-core Xeon virtual machine): 64 KiB 4.8 us against 9.2 staged, 1 MiB 77 against 145, 16 MiB
//! 2.4 ms against 2.8. Reading the results back instead of writing them took 13, 116 and 2.8:
//! it waits for the peer, and finds them in the peer's cache. Non-temporal stores made
//! every size slower (the machine's last-level cache holds them all), so there are none.
//!
//! A reduction to one rank stays staged, which takes it through memory half as often as an
//! allreduce (2 ranks: 64 KiB 3.7 us against 5.2 directly, 16 MiB 1.6 ms against 2.1).
//!
//! With fewer cores than ranks staging is faster (allreduce of 64 KiB, 2 cores: 8 ranks 40 us
//! against 103, 4 ranks 20 against 25; 1 MiB 780 against 1,120, and 353 against 384): `p (p - 1)`
//! reads and as many writes are that many system calls, and no copy that is saved was waited for by
//! anyone.

use super::combine::{Combine, reduce_in_order};
use super::copy::copy;
use super::failure::{Lost, Unmoved};
use super::operation::{Action, Operation, share_in_units};
use super::peer_memory::DirectAccess;
use super::progress::{Progress, WORDS, left_by, unit_bytes};
use super::ring::{Awaited, AwaitedEvent, Rings};
use super::segment::{EXCHANGE_RING, SHORT_RING};
use super::staged::Staged;
use super::sync::{Ordering, fence};
use super::waiting::Policy;
use crate::processor::Processor;

/// Shortest allreduce that goes directly: below, two barriers and the system calls cost more than
/// the copies they save. Measured with 2 ranks: 8 KiB 2.3 us against 2.2 staged, 16 KiB 3.1 against
/// 4.0, 32 KiB 3.8 against 5.1.
const ALLREDUCE_MIN_BYTES: usize = 16 * 1024;
/// Shortest broadcast: 32 KiB 1.8 us against 3.1, 1 MiB 59 against 78.
const BROADCAST_MIN_BYTES: usize = 32 * 1024;
/// Longest piece.
const PIECE_MAX_BYTES: usize = 128 * 1024;
/// Shortest piece: pages are what the kernel works on.
const PIECE_MIN_BYTES: usize = 4 * 1024;
/// An operation that goes directly.
pub(super) struct Direct {
    operation: Operation,
    ring: usize,
    phase: Phase,
    published: bool,
    /// Ranks below this one are known to have come.
    seen: u32,
    /// Where every rank's vectors are, in its own memory.
    buffers: Vec<Buffers>,
}

enum Phase {
    Opening,
    /// This rank has done of its part what it could.
    Closing(Progress),
    /// Some rank cannot access the memory of some other: one after the other, the last one first.
    Staged(Vec<Staged>),
}

#[derive(Clone, Copy)]
struct Buffers {
    source: u64,
    target: u64,
}

impl Direct {
    /// Whether the operation may go directly. The same at all ranks.
    pub(super) fn suits(operation: &Operation, rings: &Rings) -> bool {
        let enough_bytes = match operation.action {
            Action::Allreduce(_) => ALLREDUCE_MIN_BYTES,
            Action::Broadcast { .. } => BROADCAST_MIN_BYTES,
            _ => return false,
        };
        rings.ranks > 1
            && operation.len_bytes >= enough_bytes.max(rings.ranks as usize * PIECE_MIN_BYTES)
            && rings.peer_memory.direct_access != DirectAccess::Denied
    }

    pub(super) fn new(operation: Operation, rings: &Rings) -> Self {
        let ring = if rings.ranks == 2 { EXCHANGE_RING } else { SHORT_RING };
        let buffers = Vec::with_capacity(rings.ranks as usize);
        Self { operation, ring, phase: Phase::Opening, published: false, seen: 0, buffers }
    }

    /// Drives the operation until it is done, or has failed, or something must be awaited.
    pub(super) fn advance(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        if let Phase::Opening = self.phase {
            self.open(rings)?;
            if rings.peer_memory.direct_access == DirectAccess::Denied {
                self.stage([self.operation].into(), rings.ranks);
            } else {
                // SAFETY: `open` has returned, so all ranks have published where their vectors are.
                // They leave them to the others until the closing, or, after a failure, until
                // `outlast_writers` has returned.
                match unsafe { self.work_unless_failed(rings) } {
                    Ok(progress) => self.phase = Phase::Closing(progress),
                    Err(lost) => {
                        rings.peer_memory.failure = Some(lost);
                        return Ok(());
                    }
                }
                (self.published, self.seen) = (false, 0);
            }
        }
        if let Phase::Closing(progress) = self.phase {
            self.close(rings, progress)?;
        }
        while let Phase::Staged(running) = &mut self.phase
            && let Some(next) = running.last_mut()
        {
            next.advance(rings)?;
            running.pop();
        }
        Ok(())
    }

    /// Says how far this rank has come, learns it of all others, and stages what is left.
    fn close(&mut self, rings: &mut Rings, own: Progress) -> Result<(), Awaited> {
        let mut left = Vec::new();
        let operation = self.operation;
        let ranks = rings.ranks;
        self.step(rings, own.to_words(), |rank, words| {
            let progress = words.map_or(own, Progress::from_words);
            if progress.is_refused {
                left.extend(left_by(&operation, rank, ranks, progress));
            }
        })?;
        if !left.is_empty() {
            rings.peer_memory.direct_access = DirectAccess::Denied;
        }
        self.stage(left, ranks);
        Ok(())
    }

    fn stage(&mut self, operations: Vec<Operation>, ranks: u32) {
        let steps = operations.into_iter().rev().filter_map(|left| Staged::new(left, ranks));
        self.phase = Phase::Staged(steps.collect());
    }

    /// Publishes where this rank's vectors are, and learns where those of all others are.
    fn open(&mut self, rings: &mut Rings) -> Result<(), Awaited> {
        let has_core = rings.policy == Policy::Spin;
        let accesses_peers = u64::from(has_core && rings.peer_memory.own_probe.is_ok());
        let Operation { source, target, .. } = self.operation;
        let own = Buffers {
            source: source.expose_provenance() as u64,
            target: target.expose_provenance() as u64,
        };
        let mut buffers = std::mem::take(&mut self.buffers);
        let mut all_access = accesses_peers == 1;
        let opened = self.step(rings, [own.source, own.target, accesses_peers], |rank, words| {
            let [source, target, accesses_peers] = words.unwrap_or([own.source, own.target, 1]);
            debug_assert_eq!(rank as usize, buffers.len());
            buffers.push(Buffers { source, target });
            all_access &= accesses_peers == 1;
        });
        self.buffers = buffers;
        opened?;
        rings.peer_memory.direct_access =
            if all_access { DirectAccess::Granted } else { DirectAccess::Denied };
        Ok(())
    }

    /// One step of all ranks: gives `words`, and takes everyone's, in rank order, when all have come;
    /// this rank's own are `None`.
    fn step(
        &mut self,
        rings: &mut Rings,
        words: [u64; WORDS],
        mut take: impl FnMut(u32, Option<[u64; WORDS]>),
    ) -> Result<(), Awaited> {
        let ring = self.ring;
        let len_bytes = size_of_val(&words);
        if !self.published {
            rings.claim(ring)?;
            // SAFETY: claimed just now, not published.
            let slot = unsafe { rings.own_slot(ring, len_bytes) };
            for (place, word) in slot.as_chunks_mut::<8>().0.iter_mut().zip(words) {
                *place = word.to_ne_bytes();
            }
            rings.publish(ring, len_bytes);
            self.published = true;
        }
        let step = rings.step(ring);
        while self.seen < rings.ranks {
            let peer = self.seen;
            if peer != rings.local_rank && !rings.is_filled(ring, peer) {
                return Err(Awaited { peer, ring, step, event: AwaitedEvent::Filled });
            }
            self.seen += 1;
        }
        rings.note_all_filled(ring);
        for rank in 0..rings.ranks {
            if rank == rings.local_rank {
                take(rank, None);
                continue;
            }
            // SAFETY: the flag of `rank` was seen above.
            let slot = unsafe { rings.slot(ring, rank, step, len_bytes) };
            let mut words = [0; WORDS];
            for (word, bytes) in words.iter_mut().zip(slot.as_chunks::<8>().0) {
                *word = u64::from_ne_bytes(*bytes);
            }
            take(rank, Some(words));
        }
        rings.finish(ring, true);
        Ok(())
    }

    /// Does this rank's part, and marks itself as writing meanwhile: a rank that gives up waits
    /// until no rank writes to its memory any more (`Liveness::outlast_writers`).
    ///
    /// # Safety
    /// All ranks have published their vectors, and none has passed the closing.
    unsafe fn work_unless_failed(&self, rings: &mut Rings) -> Result<Progress, Lost> {
        rings.segment.control(rings.local_rank).writing.store(1, Ordering::Relaxed);
        // SeqCst, with the fence in `outlast_writers`: either this rank sees the failure here, or
        // who gives up for it sees this rank writing.
        fence(Ordering::SeqCst);
        let failure = Lost::from_word(rings.segment.head().failure.0.load(Ordering::Acquire));
        let outcome = match failure {
            Some(lost) => Err(lost),
            // SAFETY: this function's contract is that of `work`.
            None => unsafe { self.work(rings) },
        };
        // Release: pairs with the Acquire in `outlast_writers`; what was written comes before.
        rings.segment.control(rings.local_rank).writing.store(0, Ordering::Release);
        outcome
    }

    /// # Safety
    /// As [`work_unless_failed`](Self::work_unless_failed).
    unsafe fn work(&self, rings: &mut Rings) -> Result<Progress, Lost> {
        match self.operation.action {
            // SAFETY: this function's contract is that of `reduce_share`.
            Action::Allreduce(kernel) => unsafe { self.reduce_share(rings, kernel) },
            Action::Broadcast { from } if from != rings.local_rank => {
                let Operation { target, len_bytes, .. } = self.operation;
                let source = self.buffers[from as usize].source;
                // SAFETY: the target is valid for `len_bytes`, by the contract of `start`.
                match unsafe { rings.peer_memory.read(from, source, target, len_bytes) } {
                    Ok(()) => Ok(Progress::DONE),
                    Err(Unmoved::Refused) => Ok(Progress { is_refused: true, ..Progress::DONE }),
                    Err(Unmoved::Lost(lost)) => Err(lost),
                }
            }
            _ => Ok(Progress::DONE),
        }
    }

    /// Reduces this rank's share of the vector, for all.
    ///
    /// # Safety
    /// As [`work_unless_failed`](Self::work_unless_failed).
    unsafe fn reduce_share(
        &self,
        rings: &mut Rings,
        kernel: &dyn Combine,
    ) -> Result<Progress, Lost> {
        let unit_bytes = unit_bytes(kernel.element_bytes());
        let (own, ranks) = (rings.local_rank, rings.ranks);
        let share = share_in_units(self.operation.len_bytes, unit_bytes, own, ranks);
        let piece_bytes = piece_bytes(ranks, unit_bytes);
        let mut scratch = std::mem::take(&mut rings.peer_memory.scratch);
        scratch.resize((ranks as usize + 1) * piece_bytes, 0);
        let mut outcome = Ok(Progress::DONE);
        let mut offset = share.start;
        while offset < share.end && matches!(outcome, Ok(Progress { is_refused: false, .. })) {
            let len_bytes = piece_bytes.min(share.end - offset);
            let piece = Piece { offset, len_bytes, stride_bytes: piece_bytes };
            // SAFETY: the piece is part of this rank's share; all ranks have published their
            // vectors, and none has passed the closing, by this function's contract.
            outcome = unsafe { self.reduce_piece(rings, kernel, piece, &mut scratch) };
            offset += len_bytes;
        }
        rings.peer_memory.scratch = scratch;
        outcome
    }

    /// Reduces one piece of this rank's share, and writes it to all ranks.
    ///
    /// # Safety
    /// As [`work_unless_failed`](Self::work_unless_failed); the piece is part of this rank's share.
    unsafe fn reduce_piece(
        &self,
        rings: &Rings,
        kernel: &dyn Combine,
        piece: Piece,
        scratch: &mut [u8],
    ) -> Result<Progress, Lost> {
        let Piece { offset, len_bytes, stride_bytes } = piece;
        let own = rings.local_rank;
        let refused = |known_bytes| Progress { is_refused: true, offset, known_bytes };
        let (theirs, aside) = scratch.split_at_mut(rings.ranks as usize * stride_bytes);
        for peer in rings.peers() {
            let address = self.buffers[peer as usize].source + offset as u64;
            let target = theirs[peer as usize * stride_bytes..][..len_bytes].as_mut_ptr();
            // SAFETY: `target` points to a slice of `len_bytes`, which was just made.
            match unsafe { rings.peer_memory.read(peer, address, target, len_bytes) } {
                Ok(()) => {}
                Err(Unmoved::Refused) => return Ok(refused(0)),
                Err(Unmoved::Lost(lost)) => return Err(lost),
            }
        }
        let Operation { source, target, .. } = self.operation;
        let is_in_place = std::ptr::eq(source, target);
        // SAFETY: the piece lies within the buffers, which are valid by the contract of `start`; no
        // other rank writes to the target here, for each writes its own share.
        let (mine, result) = unsafe {
            let mine = std::slice::from_raw_parts(source.add(offset), len_bytes);
            let result = if !is_in_place {
                std::slice::from_raw_parts_mut(target.add(offset), len_bytes)
            } else {
                &mut aside[..len_bytes]
            };
            (mine, result)
        };
        reduce_in_order(kernel, result, rings.ranks, |rank, part| {
            if rank == own {
                return &mine[part];
            }
            &theirs[rank as usize * stride_bytes..][part]
        });
        let given = self.give(rings, offset, result);
        if is_in_place {
            // SAFETY: `result` is the piece in scratch memory, so it is apart from the target,
            // which is valid by the contract of `start`; no rank reads this rank's source there
            // again.
            unsafe { copy(result.as_ptr(), target.add(offset), len_bytes) };
        }
        match given {
            Ok(()) => Ok(Progress::DONE),
            Err(Unmoved::Refused) => Ok(refused(len_bytes)),
            Err(Unmoved::Lost(lost)) => Err(lost),
        }
    }

    /// Writes a piece of the result, which begins at `offset`, to all other ranks.
    fn give(&self, rings: &Rings, offset: usize, result: &[u8]) -> Result<(), Unmoved> {
        rings.peers().try_for_each(|peer| {
            let address = self.buffers[peer as usize].target + offset as u64;
            // SAFETY: the result is a slice; the peer has published its target in the opening, and only
            // this rank writes to this share of it.
            unsafe { rings.peer_memory.write(peer, address, result.as_ptr(), result.len()) }
        })
    }
}

/// A part of a share.
#[derive(Clone, Copy)]
struct Piece {
    offset: usize,
    len_bytes: usize,
    /// From one rank's piece to the next one's, in the scratch memory.
    stride_bytes: usize,
}

/// Length of a piece, a multiple of `unit_bytes`: pieces of all ranks, and their result, fit the
/// scratch memory. Each rank may have its own length; shares do not depend on it.
fn piece_bytes(ranks: u32, unit_bytes: usize) -> usize {
    let fits = Processor::own().scratch_bytes() / (ranks as usize + 1);
    fits.clamp(PIECE_MIN_BYTES, PIECE_MAX_BYTES).next_multiple_of(unit_bytes)
}
