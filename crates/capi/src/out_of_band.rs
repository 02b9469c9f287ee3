//! The out-of-band callbacks of a client, as the bootstrap of a communicator.
//!
//! Clients emulate both callbacks by an allgather over all ranks, some through buffers that they register,
//! so messages are short: `PIECE_BYTES` at most. Any answer but 0 is a failure.

use std::ffi::{c_int, c_void};

use tributary_client::{Bootstrap, BootstrapError};

use crate::abi::OutOfBand;
use crate::failure::Failure;

/// Longest message.
const PIECE_BYTES: usize = 16 << 10;

/// Callbacks that are there.
#[derive(Clone, Copy)]
pub(crate) struct Callbacks {
    bcast: unsafe extern "C" fn(*mut c_void, *mut c_void, c_int, c_int) -> c_int,
    gather: unsafe extern "C" fn(*mut c_void, c_int, *mut c_void, *mut c_void, c_int) -> c_int,
}

impl Callbacks {
    /// The callbacks of a spec.
    ///
    /// # Errors
    /// If one that is needed is null.
    pub(crate) fn of(spec: &OutOfBand) -> Result<Self, Failure> {
        match (spec.bcast, spec.gather) {
            (Some(bcast), Some(gather)) => Ok(Self { bcast, gather }),
            _ => Err(Failure::invalid("oob_colls.bcast or oob_colls.gather is NULL")),
        }
    }
}

/// The ranks behind the callbacks, during one call of the client.
pub(crate) struct Ranks {
    rank: u32,
    size: u32,
    /// None where this rank is alone: then nobody is called.
    callbacks: Option<Callbacks>,
    context: *mut c_void,
}

impl Ranks {
    /// Rank `rank` of `size`.
    ///
    /// # Errors
    /// If there is no such rank.
    ///
    /// # Safety
    /// The callbacks may be called with `context`, over these ranks, as long as the value lives.
    pub(crate) unsafe fn new(
        rank: c_int,
        size: c_int,
        callbacks: Option<Callbacks>,
        context: *mut c_void,
    ) -> Result<Self, Failure> {
        let no_rank = || Failure::invalid(format!("{rank} is not a rank of {size}"));
        let size = u32::try_from(size).ok().filter(|size| *size > 0).ok_or_else(no_rank)?;
        let rank = u32::try_from(rank).ok().filter(|rank| *rank < size).ok_or_else(no_rank)?;
        if callbacks.is_none() && size > 1 {
            return Err(Failure::invalid(format!("{size} ranks, but no out-of-band callbacks")));
        }
        let callbacks = callbacks.filter(|_| size > 1);
        Ok(Self { rank, size, callbacks, context })
    }

    fn gather(&self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let Some(callbacks) = self.callbacks else {
            all.copy_from_slice(mine);
            return Ok(());
        };
        // Clients may write to what they take as the source.
        let mut mine = mine.to_vec();
        let (source, target) = (mine.as_mut_ptr().cast(), all.as_mut_ptr().cast());
        let len = c_int::try_from(mine.len()).expect("a piece is short");
        // SAFETY: `mine` has `len` bytes and `all` as many for every rank; the contract of `new`.
        let status = unsafe { (callbacks.gather)(self.context, 0, source, target, len) };
        outcome("gather", mine.len(), status)
    }

    fn piece_from_root(&self, root: u32, piece: &mut [u8]) -> Result<(), BootstrapError> {
        let Some(callbacks) = self.callbacks else { return Ok(()) };
        let len = c_int::try_from(piece.len()).expect("a piece is short");
        let root = c_int::try_from(root).expect("a rank was one of C");
        // SAFETY: `piece` has `len` bytes; the contract of `new`.
        let status =
            unsafe { (callbacks.bcast)(self.context, piece.as_mut_ptr().cast(), len, root) };
        outcome("bcast", piece.len(), status)
    }
}

fn outcome(callback: &str, bytes: usize, status: c_int) -> Result<(), BootstrapError> {
    if status == 0 {
        return Ok(());
    }
    Err(BootstrapError(format!(
        "the client's out-of-band {callback} of {bytes} bytes returned {status}"
    )))
}

impl Bootstrap for Ranks {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let size = self.size as usize;
        assert_eq!(all.len(), mine.len() * size, "room for every rank's bytes");
        let mut gathered = vec![0; mine.len().min(PIECE_BYTES) * size];
        for (at, piece) in mine.chunks(PIECE_BYTES).enumerate() {
            let gathered = &mut gathered[..piece.len() * size];
            self.gather(piece, gathered)?;
            for (rank, bytes) in gathered.chunks_exact(piece.len()).enumerate() {
                all[rank * mine.len() + at * PIECE_BYTES..][..piece.len()].copy_from_slice(bytes);
            }
        }
        self.broadcast(0, all)
    }

    fn broadcast(&mut self, root: u32, bytes: &mut [u8]) -> Result<(), BootstrapError> {
        bytes.chunks_mut(PIECE_BYTES).try_for_each(|piece| self.piece_from_root(root, piece))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    unsafe extern "C" fn bcast(_: *mut c_void, _: *mut c_void, len: c_int, _: c_int) -> c_int {
        c_int::from(len as usize > PIECE_BYTES)
    }

    /// Two ranks whose bytes are the same.
    unsafe extern "C" fn gather(
        _: *mut c_void,
        _: c_int,
        source: *mut c_void,
        target: *mut c_void,
        len: c_int,
    ) -> c_int {
        let len = len as usize;
        // SAFETY: the caller gives `len` bytes, and room for twice as many.
        let (source, target) = unsafe {
            let target = std::slice::from_raw_parts_mut(target.cast::<u8>(), 2 * len);
            (std::slice::from_raw_parts(source.cast::<u8>(), len), target)
        };
        target[..len].copy_from_slice(source);
        target[len..].copy_from_slice(source);
        c_int::from(len > PIECE_BYTES)
    }

    unsafe extern "C" fn positive(_: *mut c_void, _: *mut c_void, _: c_int, _: c_int) -> c_int {
        3
    }

    fn ranks(callbacks: Callbacks) -> Ranks {
        // SAFETY: the callbacks above use no context.
        unsafe { Ranks::new(0, 2, Some(callbacks), std::ptr::null_mut()) }.unwrap()
    }

    #[test]
    fn long_messages_go_in_pieces_and_come_together_by_rank() {
        let mine: Vec<u8> = (0..3 * PIECE_BYTES + 5).map(|at| at as u8).collect();
        let mut all = vec![0; 2 * mine.len()];
        ranks(Callbacks { bcast, gather }).allgather(&mine, &mut all).unwrap();
        assert!(all == [mine.clone(), mine].concat());
    }

    #[test]
    fn a_positive_answer_is_a_failure_too() {
        let mut bytes = [0];
        let error = ranks(Callbacks { bcast: positive, gather }).broadcast(1, &mut bytes);
        assert!(error.unwrap_err().to_string().contains("bcast of 1 bytes returned 3"));
    }

    #[test]
    fn ranks_that_are_none_are_refused() {
        for (rank, size) in [(-1, 2), (2, 2), (0, 0), (0, -1), (c_int::MAX, 1)] {
            let callbacks = Some(Callbacks { bcast, gather });
            // SAFETY: as in `ranks`.
            let refused = unsafe { Ranks::new(rank, size, callbacks, std::ptr::null_mut()) };
            assert!(refused.is_err(), "{rank} of {size}");
        }
    }
}
