//! The memory of the other ranks, which loom watches: one cell for a rank's source, and one a
//! writer for its target, because each writes a share of its own.

use std::slice;
use std::sync::{Arc, Mutex};

use loom::cell::UnsafeCell;

use super::failure::{Lost, LostCause, Unmoved};

const SCRATCH_BYTES: usize = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectAccess {
    Unknown,
    Granted,
    Denied,
}

/// Why a rank does not reach another; in the model there is one reason.
#[derive(Clone, Copy, Debug)]
pub struct Unreachable;

/// What may be at work on one rank's buffers.
pub(super) struct Buffers {
    source: UnsafeCell<()>,
    target: Vec<UnsafeCell<()>>,
    /// Of operations that came to nothing: peers may still read them, and then learn of the
    /// failure.
    given_up: Mutex<Vec<Vec<u8>>>,
}

impl Buffers {
    pub(super) fn new(ranks: u32) -> Self {
        let target = (0..ranks).map(|_| UnsafeCell::new(())).collect();
        Self { source: UnsafeCell::new(()), target, given_up: Mutex::default() }
    }

    /// The owner uses both as it likes.
    pub(super) fn are_the_owners(&self) {
        self.source.with_mut(|_| ());
        self.target_is_the_owners();
    }

    /// Keeps `vectors` as long as any rank may read them.
    pub(super) fn keep(&self, vectors: [Vec<u8>; 2]) {
        self.given_up.lock().expect("no thread panics").extend(vectors);
    }

    /// The owner uses its target as it likes.
    pub(super) fn target_is_the_owners(&self) {
        self.target.iter().for_each(|share| share.with_mut(|_| ()));
    }
}

pub(super) struct PeerMemory {
    buffers: Arc<Vec<Buffers>>,
    local_rank: u32,
    pub(super) own_probe: Result<(), Unreachable>,
    pub(super) direct_access: DirectAccess,
    pub(super) scratch: Vec<u8>,
    pub(super) failure: Option<Lost>,
    /// The peer whose memory is found to be gone, if one's is.
    pub(super) gone: Option<u32>,
    /// Whether this rank has lost its access to all others' memory.
    pub(super) refused: bool,
}

impl PeerMemory {
    /// `has_core`: whether operations go directly. Then the scratch memory is there already, so that
    /// no execution of a model has to clear it.
    pub(super) fn new(buffers: Arc<Vec<Buffers>>, local_rank: u32, has_core: bool) -> Self {
        let scratch = if has_core { vec![0; SCRATCH_BYTES] } else { Vec::new() };
        Self {
            buffers,
            local_rank,
            own_probe: Ok(()),
            direct_access: DirectAccess::Unknown,
            scratch,
            failure: None,
            gone: None,
            refused: false,
        }
    }

    fn check_peer(&self, peer: u32) -> Result<(), Unmoved> {
        let lost = Lost::new(peer, LostCause::Died);
        if self.refused {
            return Err(Unmoved::Refused);
        }
        if self.gone == Some(peer) { Err(Unmoved::Lost(lost)) } else { Ok(()) }
    }

    /// # Safety
    /// `target` is valid for writing `len_bytes`, and so is the peer's buffer for reading.
    pub(super) unsafe fn read(
        &self,
        peer: u32,
        address: u64,
        target: *mut u8,
        len_bytes: usize,
    ) -> Result<(), Unmoved> {
        self.check_peer(peer)?;
        self.buffers[peer as usize].source.with(|_| ());
        let source = std::ptr::with_exposed_provenance::<u8>(address as usize);
        // SAFETY: both buffers are valid for `len_bytes`, by this function's contract; the ranks are
        // threads of one process, so the address is this process's.
        unsafe { slice::from_raw_parts_mut(target, len_bytes) }
            // SAFETY: as for the other buffer.
            .copy_from_slice(unsafe { slice::from_raw_parts(source, len_bytes) });
        Ok(())
    }

    /// # Safety
    /// `source` is valid for reading `len_bytes`, and so is the peer's buffer for writing.
    pub(super) unsafe fn write(
        &self,
        peer: u32,
        address: u64,
        source: *const u8,
        len_bytes: usize,
    ) -> Result<(), Unmoved> {
        self.check_peer(peer)?;
        self.buffers[peer as usize].target[self.local_rank as usize].with_mut(|_| ());
        let target = std::ptr::with_exposed_provenance_mut::<u8>(address as usize);
        // SAFETY: both buffers are valid for `len_bytes`, by this function's contract; the ranks are
        // threads of one process, so the address is this process's.
        unsafe { slice::from_raw_parts_mut(target, len_bytes) }
            // SAFETY: as for the other buffer.
            .copy_from_slice(unsafe { slice::from_raw_parts(source, len_bytes) });
        Ok(())
    }
}
