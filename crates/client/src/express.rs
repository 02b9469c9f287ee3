//! Short collectives of one host, straight to shared memory.
//!
//! What `Communicator::run` does with any operation, for callers that have one of few bytes and have
//! looked at its arguments already: no [`Operation`](crate::Operation) is made of them, and nothing
//! is asked twice. What does not go this way is left alone, to be run as usual, so nothing here
//! says why. Counts what it carries; knows nothing of errors but that there was one.

use crate::communicator::Access;
use crate::kernels::PairNumber;
use crate::report::{Kind, Tally, Way};
use tributary_shm_collectives::Lost;

/// What became of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Sent {
    /// It is done.
    Done,
    /// It has to be [run](crate::Communicator::run) as usual: it does not go this way, or a rank was
    /// lost during it, which `run` will say.
    Refused,
}

/// A communicator of one host on which nothing is under way, in the hands of one thread.
pub struct Express<'a> {
    access: Access<'a>,
    tally: &'a Tally,
}

impl<'a> Express<'a> {
    #[inline]
    pub(crate) fn new(access: Access<'a>, tally: &'a Tally) -> Self {
        Self { access, tally }
    }

    /// An allreduce.
    ///
    /// # Safety
    /// `source` and `target` are as [`Communicator::run`](crate::Communicator::run) asks for them.
    #[inline]
    pub unsafe fn allreduce(
        &mut self,
        pair: PairNumber,
        elements: u64,
        source: *const u8,
        target: *mut u8,
    ) -> Sent {
        let Some((host, kernel)) = self.access.express_with(pair) else { return Sent::Refused };
        let len_bytes = kernel.len_bytes(elements);
        // SAFETY: the caller's promise.
        let outcome = unsafe { host.allreduce_of_two(kernel, source, target, len_bytes) };
        self.settle(Kind::Allreduce, outcome)
    }

    /// A reduction to one rank.
    ///
    /// # Safety
    /// As [`allreduce`](Self::allreduce).
    #[inline]
    pub unsafe fn reduce(
        &mut self,
        pair: PairNumber,
        elements: u64,
        root: u32,
        source: *const u8,
        target: *mut u8,
    ) -> Sent {
        let Some((host, kernel)) = self.access.express_with(pair) else { return Sent::Refused };
        let len_bytes = kernel.len_bytes(elements);
        // SAFETY: the caller's promise; on one host the local ranks are those of the communicator.
        let outcome = unsafe { host.reduce_lines(root, kernel, source, target, len_bytes) };
        self.settle(Kind::Reduce, outcome)
    }

    /// A broadcast of `len_bytes`.
    ///
    /// # Safety
    /// As [`allreduce`](Self::allreduce), for `buffer`.
    #[inline]
    pub unsafe fn broadcast(&mut self, len_bytes: u64, root: u32, buffer: *mut u8) -> Sent {
        let Some(host) = self.access.express() else { return Sent::Refused };
        let (source, len_bytes) = (buffer.cast_const(), len_bytes as usize);
        // SAFETY: the caller's promise; on one host the local ranks are those of the communicator.
        let outcome = unsafe { host.broadcast_line(root, source, buffer, len_bytes) };
        self.settle(Kind::Bcast, outcome)
    }

    /// A barrier.
    #[inline]
    pub fn barrier(&mut self) -> Sent {
        let Some(host) = self.access.express() else { return Sent::Refused };
        let outcome = host.barrier_of_two();
        self.settle(Kind::Barrier, outcome)
    }

    #[inline]
    fn settle(&mut self, kind: Kind, outcome: Option<Result<(), Lost>>) -> Sent {
        match outcome {
            Some(Ok(())) => {
                self.tally.count_in_turn(kind, Way::InNode);
                Sent::Done
            }
            Some(Err(lost)) => self.fail(lost),
            None => Sent::Refused,
        }
    }

    /// Has the next operation on the communicator, which is this one again, end with the error.
    #[cold]
    fn fail(&mut self, lost: Lost) -> Sent {
        self.access.on_lost(lost);
        Sent::Refused
    }
}
