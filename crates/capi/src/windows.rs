//! Reduce-scatter and allgather over windows: which bytes of a window are whose.
//!
//! The whole vector is that of all ranks' blocks, one behind the other. A client may ask for a part of it,
//! from any byte on, that covers the blocks of some ranks only.

use std::ops::Range;
use std::ptr;

use tributary_client::{Blocks, Operation};

use crate::failure::Failure;
use crate::memory::Region;
use crate::work::Work;

/// What the bytes of a window depend on, besides the buffers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Geometry {
    pub(crate) rank: u32,
    pub(crate) size: u32,
    pub(crate) element_bytes: usize,
    /// Where the window begins in the whole vector.
    pub(crate) offset_bytes: usize,
}

/// A reduce-scatter whose buffers and blocks are known.
#[derive(Debug)]
pub(crate) struct Scatter {
    source: Region,
    element_bytes: usize,
    /// Where the blocks of the window begin, and the last one ends, in elements; none if they are even.
    cuts: Vec<u64>,
    /// Where this rank's part goes.
    own: Region,
}

/// The parts of an allgather.
#[derive(Debug)]
pub(crate) struct Pieces {
    /// Whether the window is the whole vector.
    pub(crate) is_whole: bool,
    /// Where in the window whose bytes are; ranks that have none are left out.
    pub(crate) of_ranks: Vec<(u32, Region)>,
    /// Where this rank's part begins in its source.
    own_skipped_bytes: usize,
}

impl Geometry {
    /// A reduce-scatter of the window `source` into the blocks of which `target` is this rank's.
    pub(crate) fn scatter(self, source: Region, target: Region) -> Result<Scatter, Failure> {
        let block_bytes = target.len_bytes;
        let window = self.window(source.len_bytes, block_bytes)?;
        self.are_elements(&[block_bytes, window.start, window.end])?;
        let is_whole = window == (0..block_bytes * self.size as usize);
        let mut cuts = Vec::new();
        if !is_whole {
            let cut = |rank: usize| (rank * block_bytes).clamp(window.start, window.end);
            let in_elements = |byte: usize| ((byte - window.start) / self.element_bytes) as u64;
            cuts = (0..=self.size as usize).map(|rank| in_elements(cut(rank))).collect();
        }
        let block_start = self.rank as usize * block_bytes;
        let own = overlap(&window, &(block_start..block_start + block_bytes));
        let own = Region {
            start: target.start.wrapping_add(own.start.saturating_sub(block_start)),
            len_bytes: own.len(),
        };
        Ok(Scatter { source, element_bytes: self.element_bytes, cuts, own })
    }

    /// A reduce-scatter of the whole vector `whole` to this rank's block in it.
    pub(crate) fn scatter_in_place(self, whole: Region) -> Result<Scatter, Failure> {
        let size = self.size as usize;
        let block_bytes = whole.len_bytes / size;
        if self.offset_bytes != 0 || !whole.len_bytes.is_multiple_of(size) {
            return Err(Failure::invalid(format!(
                "in place, {} bytes from byte {} on are no whole vector of {size} blocks",
                whole.len_bytes, self.offset_bytes
            )));
        }
        self.are_elements(&[block_bytes])?;
        let start = whole.start.wrapping_add(self.rank as usize * block_bytes);
        let own = Region { start, len_bytes: block_bytes };
        Ok(Scatter { source: whole, element_bytes: self.element_bytes, cuts: Vec::new(), own })
    }

    /// An allgather of blocks, of which `source` is this rank's, to the window `target`.
    pub(crate) fn gather(self, source: Region, target: Region) -> Result<Pieces, Failure> {
        let block_bytes = source.len_bytes;
        let window = self.window(target.len_bytes, block_bytes)?;
        let piece = |rank: u32| {
            let start = rank as usize * block_bytes;
            let bytes = overlap(&window, &(start..start + block_bytes));
            let start = target.start.wrapping_add(bytes.start.saturating_sub(window.start));
            (rank, Region { start, len_bytes: bytes.len() })
        };
        let pieces = (0..self.size).map(piece).filter(|(_, piece)| piece.len_bytes > 0);
        Ok(Pieces {
            is_whole: window == (0..block_bytes * self.size as usize),
            of_ranks: pieces.collect(),
            own_skipped_bytes: window.start.saturating_sub(self.rank as usize * block_bytes),
        })
    }

    /// The window's bytes in the whole vector.
    fn window(self, len_bytes: usize, block_bytes: usize) -> Result<Range<usize>, Failure> {
        let whole_bytes = block_bytes.checked_mul(self.size as usize);
        let end = self.offset_bytes.checked_add(len_bytes);
        match (end, whole_bytes) {
            (Some(end), Some(whole_bytes)) if end <= whole_bytes => Ok(self.offset_bytes..end),
            _ => Err(Failure::invalid(format!(
                "a window of {len_bytes} bytes from byte {} on ends beyond {} blocks of {block_bytes} bytes",
                self.offset_bytes, self.size
            ))),
        }
    }

    fn are_elements(self, bytes: &[usize]) -> Result<(), Failure> {
        let element_bytes = self.element_bytes;
        match bytes.iter().find(|bytes| !bytes.is_multiple_of(element_bytes)) {
            None => Ok(()),
            Some(bytes) => Err(Failure::invalid(format!(
                "byte {bytes} is in the middle of an element of {element_bytes} bytes"
            ))),
        }
    }
}

impl Scatter {
    /// The work; `operation` lacks elements, blocks and buffers.
    pub(crate) fn work(self, operation: Operation) -> Work {
        let Self { source, element_bytes, cuts, own } = self;
        let mut work = Work { cuts, ..Work::default() };
        let mut target = own.start;
        if own.overlaps(&source) {
            work.staged = vec![0; own.len_bytes];
            work.landing = Some(own.start);
            target = work.staged.as_mut_ptr();
        }
        work.operations = vec![Operation {
            elements: (source.len_bytes / element_bytes) as u64,
            blocks: if work.cuts.is_empty() {
                Blocks::Even
            } else {
                Blocks::At(work.cuts.as_ptr())
            },
            source: source.start,
            target,
            ..operation
        }];
        work
    }
}

impl Pieces {
    /// Copies this rank's part to its place.
    ///
    /// # Safety
    /// Both are the client's buffers, and ours.
    pub(crate) unsafe fn bring_own(&self, source: Region, rank: u32) {
        let Some((_, piece)) = self.of_ranks.iter().find(|(owner, _)| *owner == rank) else {
            return;
        };
        let source = source.start.wrapping_add(self.own_skipped_bytes);
        // SAFETY: the piece is the overlap of the window with this rank's block, so both have its bytes.
        unsafe { ptr::copy(source, piece.start, piece.len_bytes) };
    }
}

/// The bytes in both, or an empty range.
fn overlap(one: &Range<usize>, other: &Range<usize>) -> Range<usize> {
    let start = one.start.max(other.start);
    start..one.end.min(other.end).max(start)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn region(address: usize, len_bytes: usize) -> Region {
        Region { start: ptr::without_provenance_mut(address), len_bytes }
    }

    fn geometry(rank: u32, offset_bytes: usize) -> Geometry {
        Geometry { rank, size: 4, element_bytes: 4, offset_bytes }
    }

    #[test]
    fn the_whole_vector_has_even_blocks() {
        let scatter = geometry(2, 0).scatter(region(0x1000, 64), region(0x9000, 16)).unwrap();
        assert!(scatter.cuts.is_empty());
        assert_eq!(scatter.own, region(0x9000, 16));
    }

    #[test]
    fn a_window_covers_some_owners_in_part() {
        // Bytes 24 to 40 of blocks of 16: the second half of block 1, the first of block 2.
        let scatter =
            |rank| geometry(rank, 24).scatter(region(0x1000, 16), region(0x9000, 16)).unwrap();
        assert_eq!(scatter(0).cuts, [0, 0, 2, 4, 4]);
        assert_eq!(scatter(0).own.len_bytes, 0);
        assert_eq!(scatter(1).own, region(0x9008, 8));
        assert_eq!(scatter(2).own, region(0x9000, 8));
        assert_eq!(scatter(3).own.len_bytes, 0);
        let pieces = geometry(1, 24).gather(region(0x1000, 16), region(0x9000, 16)).unwrap();
        assert_eq!(pieces.of_ranks, [(1, region(0x9000, 8)), (2, region(0x9008, 8))]);
        assert_eq!((pieces.is_whole, pieces.own_skipped_bytes), (false, 8));
    }

    #[test]
    fn in_place_a_block_stays_where_it_is() {
        let scatter = geometry(3, 0).scatter_in_place(region(0x1000, 64)).unwrap();
        assert_eq!((scatter.source, scatter.own), (region(0x1000, 64), region(0x1030, 16)));
        assert!(geometry(3, 0).scatter_in_place(region(0x1000, 66)).is_err());
        assert!(geometry(3, 4).scatter_in_place(region(0x1000, 64)).is_err());
    }

    #[test]
    fn windows_that_are_none_are_refused() {
        let (source, target) = (region(0x1000, 16), region(0x9000, 16));
        for offset in [49, 50, 64, usize::MAX - 8, usize::MAX] {
            assert!(geometry(0, offset).scatter(source, target).is_err(), "{offset}");
            assert!(geometry(0, offset).gather(source, target).is_err(), "{offset}");
        }
        assert!(geometry(0, 2).scatter(source, target).is_err());
        assert!(geometry(0, 0).scatter(source, region(0x9000, usize::MAX / 2)).is_err());
    }
}
