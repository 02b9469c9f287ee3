//! What a rank does by itself, between the stages that it shares with others.
//!
//! Owns the copies and reductions of vectors that lie in this process. Knows the placement; must not know
//! how the vectors came here, or where they go.

use std::ops::Range;
use std::slice;

use tributary_shm_collectives::{Blocks, Combine, reduce_in_order};

use crate::placement::Placement;

/// One rank's work on its own memory.
#[derive(Clone, Copy)]
pub(super) enum Local {
    /// `target = source`. They may overlap.
    Copy { source: *const u8, target: *mut u8, len_bytes: usize },
    /// Sets a vector to zero, except for the bytes from `kept_first` to before `kept_end`.
    Clear { vector: *mut u8, len_bytes: usize, kept_first: usize, kept_end: usize },
    /// Puts the ranks' blocks into another order.
    Arrange(Arrangement),
    /// `target = ((first OP second) OP ...)` of the vectors, one behind the other in host order, of the
    /// ranks below `ranks`, at least one.
    Prefix {
        kernel: &'static dyn Combine,
        vectors: *const u8,
        ranks: u32,
        target: *mut u8,
        len_bytes: usize,
    },
    /// Takes the reduction of the hosts before into this host's scan.
    Lead(Lead),
}

/// A vector of one block for each rank, from one order into the other.
#[derive(Clone, Copy)]
pub(super) struct Arrangement {
    pub(super) into: BlockOrder,
    pub(super) source: *const u8,
    pub(super) target: *mut u8,
    /// Blocks of the vector in rank order, in elements.
    pub(super) blocks: Blocks,
    pub(super) element_bytes: usize,
    pub(super) len_bytes: usize,
}

/// The order of blocks in a vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockOrder {
    /// As [`Placement`] has the ranks of each host together.
    Hosts,
    /// By rank.
    Ranks,
}

/// What a leader does with the reduction of the hosts before its own, of which there is one at least.
#[derive(Clone, Copy)]
pub(super) struct Lead {
    pub(super) kernel: &'static dyn Combine,
    /// The hosts' reductions one behind the other, if `prefix` is yet to be made of them; else null.
    pub(super) totals: *const u8,
    pub(super) hosts_before: u32,
    /// The reduction of the hosts before.
    pub(super) prefix: *mut u8,
    /// This rank's contribution.
    pub(super) source: *const u8,
    /// Where `prefix OP source` goes: it takes the place of the source in the host's scan.
    pub(super) own: *mut u8,
    /// This rank's result; may be the source.
    pub(super) target: *mut u8,
    pub(super) len_bytes: usize,
    pub(super) inclusive: bool,
    /// Whether the rank is alone on its host, so that no scan follows there.
    pub(super) is_alone: bool,
}

impl Local {
    /// Does it.
    ///
    /// # Safety
    /// The buffers are valid for the lengths that are told, used by nobody else, and apart where nothing
    /// else is said; so are the blocks.
    pub(super) unsafe fn run(&self, placement: &Placement) {
        match *self {
            Self::Copy { source, target, len_bytes } => {
                // SAFETY: valid by this function's contract.
                unsafe { std::ptr::copy(source, target, len_bytes) }
            }
            Self::Clear { vector, len_bytes, kept_first, kept_end } => {
                // SAFETY: valid by this function's contract.
                let vector = unsafe { slice::from_raw_parts_mut(vector, len_bytes) };
                vector[..kept_first].fill(0);
                vector[kept_end..].fill(0);
            }
            Self::Arrange(arrangement) => {
                // SAFETY: by this function's contract.
                unsafe { arrangement.run(placement) }
            }
            Self::Prefix { kernel, vectors, ranks, target, len_bytes } => {
                // SAFETY: by this function's contract.
                unsafe {
                    let at = |rank| placement.position(rank);
                    prefix(kernel, target, len_bytes, ranks, |rank| {
                        vectors.add(at(rank) as usize * len_bytes)
                    });
                }
            }
            Self::Lead(lead) => {
                // SAFETY: by this function's contract.
                unsafe { lead.run() }
            }
        }
    }
}

impl Arrangement {
    /// # Safety
    /// As [`Local::run`].
    unsafe fn run(&self, placement: &Placement) {
        let mut in_host_order = 0;
        for host in 0..placement.host_count() {
            for &rank in placement.ranks_of(host) {
                // SAFETY: there is one for every rank, by this function's contract.
                let elements =
                    unsafe { block_of(self.blocks, rank, placement.ranks(), self.elements()) };
                let first_by_rank = elements.start as usize * self.element_bytes;
                let block_bytes = (elements.end - elements.start) as usize * self.element_bytes;
                let (from, to) = match self.into {
                    BlockOrder::Hosts => (first_by_rank, in_host_order),
                    BlockOrder::Ranks => (in_host_order, first_by_rank),
                };
                // SAFETY: blocks lie within the vector in either order, and the buffers are apart, by
                // this function's contract.
                unsafe {
                    let (source, target) = (self.source.add(from), self.target.add(to));
                    source.copy_to_nonoverlapping(target, block_bytes);
                }
                in_host_order += block_bytes;
            }
        }
    }

    fn elements(&self) -> u64 {
        (self.len_bytes / self.element_bytes) as u64
    }
}

impl Lead {
    /// # Safety
    /// As [`Local::run`].
    unsafe fn run(&self) {
        let &Self { kernel, len_bytes, prefix: hosts_before, .. } = self;
        // SAFETY: valid, and apart where they are not one, by this function's contract; what is
        // written is not read through another slice meanwhile.
        unsafe {
            if !self.totals.is_null() {
                let total = |host: u32| self.totals.add(host as usize * len_bytes);
                prefix(kernel, hosts_before, len_bytes, self.hosts_before, total);
            }
            let before = slice::from_raw_parts(hosts_before.cast_const(), len_bytes);
            if !self.is_alone || self.inclusive {
                let source = slice::from_raw_parts(self.source, len_bytes);
                let own = slice::from_raw_parts_mut(self.own, len_bytes);
                kernel.combine_into(own, before, source);
            }
            if !self.inclusive {
                self.target.copy_from_nonoverlapping(hosts_before, len_bytes);
            } else if self.is_alone {
                self.target.copy_from_nonoverlapping(self.own, len_bytes);
            }
        }
    }
}

/// `target = ((0 OP 1) OP 2) ...` of the vectors below `count`, at least one, at `place`.
///
/// # Safety
/// The vectors and `target` are valid for `len_bytes`, and apart.
pub(super) unsafe fn prefix(
    kernel: &dyn Combine,
    target: *mut u8,
    len_bytes: usize,
    count: u32,
    place: impl Fn(u32) -> *const u8,
) {
    // SAFETY: by this function's contract.
    let (target, vector) = unsafe {
        let vector = |at| slice::from_raw_parts(place(at), len_bytes);
        (slice::from_raw_parts_mut(target, len_bytes), vector)
    };
    if count == 1 {
        target.copy_from_slice(vector(0));
    } else {
        reduce_in_order(kernel, target, count, |at, part| &vector(at)[part]);
    }
}

/// The block of `rank` among `ranks`, in elements of a vector of so many.
///
/// # Safety
/// `blocks` are as their type says, for a vector of `elements`.
pub(super) unsafe fn block_of(blocks: Blocks, rank: u32, ranks: u32, elements: u64) -> Range<u64> {
    match blocks {
        Blocks::Even => {
            let block = elements / u64::from(ranks);
            u64::from(rank) * block..u64::from(rank + 1) * block
        }
        Blocks::At(cuts) => {
            // SAFETY: there are `ranks + 1` of them, by this function's contract.
            unsafe { cuts.add(rank as usize).read()..cuts.add(rank as usize + 1).read() }
        }
    }
}
