//! The combiner of a `tributary_operation`: a C function of the caller's, as an operator of the engine.
//!
//! Owns what such a function may rely on: elements aligned as `malloc` aligns them, and a left operand
//! that it only reads. Vectors in shared memory begin anywhere, so elements are copied where they must.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use tributary_client::Combiner;
use tributary_shm_collectives::Combine;

/// Alignment of the memory that `malloc` gives: what a function may rely on under any MPI.
const ALIGNMENT: usize = 16;
/// Memory for copies of elements. Holds two of the longest.
const COPY_BYTES: usize = 8 * 1024;
/// Most elements of one call.
const ELEMENTS_MAX: usize = c_int::MAX as usize;

/// `tributary_combine`.
pub(crate) type CCombine = unsafe extern "C" fn(
    context: *const *mut c_void,
    left: *const c_void,
    right: *mut c_void,
    elements: u64,
) -> c_int;

/// `tributary_combiner`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CCombiner {
    combine: Option<CCombine>,
    context: [*mut c_void; 2],
    element_bytes: u32,
    commutes: u32,
}

/// A combiner during one operation.
pub(crate) struct Combining {
    combine: CCombine,
    context: [*mut c_void; 2],
    element_bytes: usize,
    /// The alignment that its elements may need.
    alignment: usize,
    /// The first result of `combine` that was not 0.
    outcome: AtomicI32,
}

// SAFETY: the header asks for a `combine` that any thread in a function of the core for the operation may call
// with `context`; no other thread calls it.
unsafe impl Sync for Combining {}
// SAFETY: as above.
unsafe impl Send for Combining {}

#[repr(align(64))]
struct Copied([MaybeUninit<u8>; COPY_BYTES]);

impl Copied {
    const EMPTY: Self = Self([MaybeUninit::uninit(); COPY_BYTES]);

    /// A copy of `bytes`, which are not more than fit.
    fn of(&mut self, bytes: &[u8]) -> &mut [u8] {
        self.0[..bytes.len()].write_copy_of_slice(bytes)
    }
}

impl CCombiner {
    /// The combiner, where an operation has one, and whether it commutes.
    pub(crate) fn combining(&self) -> Option<(Combining, bool)> {
        let element_bytes = self.element_bytes as usize;
        // An alignment is a power of two that divides the size.
        let alignment = ALIGNMENT.min(1 << element_bytes.trailing_zeros().min(31));
        let combining = Combining {
            combine: self.combine?,
            context: self.context,
            element_bytes,
            alignment,
            outcome: AtomicI32::new(0),
        };
        Some((combining, self.commutes != 0))
    }
}

/// The combiner of an operation that outlives the call that starts it, if it has one, and whether it commutes.
#[derive(Clone)]
pub(crate) struct Kept(Option<(Arc<Combining>, bool)>);

/// The caller's function refused elements.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the underlying MPI could not combine elements: its error code is {0}")]
pub(crate) struct NotCombined(c_int);

impl Kept {
    pub(crate) fn of(combining: Option<(Combining, bool)>) -> Self {
        Self(combining.map(|(combining, commutes)| (Arc::new(combining), commutes)))
    }

    pub(crate) fn is_none(&self) -> bool {
        self.0.is_none()
    }

    /// What the operation is told of it.
    pub(crate) fn combiner(&self) -> Option<Combiner> {
        self.0.as_ref().map(|(combining, commutes)| Combiner::new(&**combining, *commutes))
    }

    /// Whether it has combined everything, once the operation is over.
    pub(crate) fn outcome(&self) -> Result<(), NotCombined> {
        match self.0.as_ref().map_or(0, |(combining, _)| combining.outcome()) {
            0 => Ok(()),
            code => Err(NotCombined(code)),
        }
    }
}

impl Combining {
    /// The first result of the function that was not 0; 0 if all were.
    pub(crate) fn outcome(&self) -> c_int {
        self.outcome.load(Ordering::Relaxed)
    }

    fn is_aligned(&self, bytes: &[u8]) -> bool {
        bytes.as_ptr().addr().is_multiple_of(self.alignment)
    }

    /// Bytes that go at a time, whole elements: as many as `at_once_bytes` hold.
    fn step_bytes(&self, at_once_bytes: usize) -> usize {
        (at_once_bytes / self.element_bytes).clamp(1, ELEMENTS_MAX) * self.element_bytes
    }

    /// `right = left OP right`; both are aligned.
    fn call(&self, left: &[u8], right: &mut [u8]) {
        let elements = (right.len() / self.element_bytes) as u64;
        // SAFETY: the header asks for a function that reads `elements` elements from `left` and replaces
        // as many in `right`. Both slices have so many, aligned, and do not overlap.
        let outcome = unsafe {
            (self.combine)(
                self.context.as_ptr(),
                left.as_ptr().cast(),
                right.as_mut_ptr().cast(),
                elements,
            )
        };
        // Relaxed: read by the thread that calls, when it has called.
        let _ = self.outcome.compare_exchange(0, outcome, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// `right = left OP right`, wherever `left` is; `right` is aligned.
    fn call_aligned(&self, left: &[u8], right: &mut [u8], aside: &mut Copied) {
        if self.is_aligned(left) {
            self.call(left, right)
        } else {
            self.call(aside.of(left), right)
        }
    }
}

impl Combine for Combining {
    fn element_bytes(&self) -> usize {
        self.element_bytes
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        let is_direct = self.is_aligned(target);
        let at_once_bytes =
            if is_direct && self.is_aligned(left) { usize::MAX } else { COPY_BYTES };
        let step = self.step_bytes(at_once_bytes);
        let (mut result, mut aside) = (Copied::EMPTY, Copied::EMPTY);
        let operands = left.chunks(step).zip(right.chunks(step));
        for (target, (left, right)) in target.chunks_mut(step).zip(operands) {
            if is_direct {
                target.copy_from_slice(right);
                self.call_aligned(left, target, &mut aside);
            } else {
                let result = result.of(right);
                self.call_aligned(left, result, &mut aside);
                target.copy_from_slice(result);
            }
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        let step = self.step_bytes(COPY_BYTES);
        let (mut result, mut aside) = (Copied::EMPTY, Copied::EMPTY);
        for (target, source) in target.chunks_mut(step).zip(source.chunks(step)) {
            let result = result.of(source);
            self.call_aligned(target, result, &mut aside);
            target.copy_from_slice(result);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `a + 2 b` of `u64` elements: not commutative. Counts what is not aligned in its context.
    unsafe extern "C" fn weighted(
        context: *const *mut c_void,
        left: *const c_void,
        right: *mut c_void,
        elements: u64,
    ) -> c_int {
        let is_aligned = left.addr().is_multiple_of(16) && right.addr().is_multiple_of(16);
        // SAFETY: the test gives the address of a counter, and of vectors of `elements` elements.
        unsafe {
            *(*context).cast::<u32>() += u32::from(!is_aligned);
            for at in 0..2 * elements as usize {
                let (left, right) = (left.cast::<u64>().add(at), right.cast::<u64>().add(at));
                right.write_unaligned(
                    left.read_unaligned().wrapping_add(right.read_unaligned().wrapping_mul(2)),
                );
            }
        }
        if elements > 600 { 7 } else { 0 }
    }

    /// A vector of two-word elements that begins `offset` bytes behind a multiple of 64.
    fn place_words(words: &[u64], offset: usize) -> (Vec<u8>, std::ops::Range<usize>) {
        let mut memory = vec![0; 8 * words.len() + 128];
        let start = memory.as_ptr().align_offset(64) + offset;
        for (word, bytes) in words.iter().zip(memory[start..].as_chunks_mut::<8>().0) {
            *bytes = word.to_le_bytes();
        }
        (memory, start..start + 8 * words.len())
    }

    #[test]
    fn the_function_gets_aligned_elements_in_order_wherever_vectors_lie() {
        let mut misaligned = 0_u32;
        let context = [(&raw mut misaligned).cast(), std::ptr::null_mut()];
        let combiner =
            CCombiner { combine: Some(weighted), context, element_bytes: 16, commutes: 0 };
        for elements in [1, 3, 511, 512, 513] {
            for offsets in 0..27 {
                let offset = |nth: usize| [0, 8, 3][offsets / 3_usize.pow(nth as u32) % 3];
                let left: Vec<u64> = (0..2 * elements).map(|at| at * 77 + 5).collect();
                let right: Vec<u64> = (0..2 * elements).map(|at| at << 33 | 9).collect();
                let expected: Vec<u8> = left
                    .iter()
                    .zip(&right)
                    .flat_map(|(left, right)| (left + 2 * right).to_le_bytes())
                    .collect();
                let (left, at_left) = place_words(&left, offset(0));
                let (right, at_right) = place_words(&right, offset(1));
                let (mut target, at_target) =
                    place_words(&vec![0; 2 * elements as usize], offset(2));
                let (combining, commutes) = combiner.combining().unwrap();
                combining.combine_into(
                    &mut target[at_target.clone()],
                    &left[at_left.clone()],
                    &right[at_right.clone()],
                );
                assert_eq!(target[at_target.clone()], expected, "{elements} at {offsets}");
                target[at_target.clone()].copy_from_slice(&left[at_left]);
                combining.fold(&mut target[at_target.clone()], &right[at_right]);
                assert_eq!(target[at_target], expected, "{elements} at {offsets}, folded");
                assert_eq!((combining.outcome(), commutes), (0, false));
            }
        }
        assert_eq!(misaligned, 0);
    }

    #[test]
    fn an_outcome_is_kept() {
        let mut misaligned = 0_u32;
        let context = [(&raw mut misaligned).cast(), std::ptr::null_mut()];
        let combiner =
            CCombiner { combine: Some(weighted), context, element_bytes: 16, commutes: 1 };
        let (combining, _) = combiner.combining().unwrap();
        let (vector, at) = place_words(&[1; 2 * 601], 0);
        let (mut target, at_target) = place_words(&[0; 2 * 601], 0);
        combining.combine_into(&mut target[at_target], &vector[at.clone()], &vector[at]);
        assert_eq!(combining.outcome(), 7);
    }

    #[test]
    fn an_operation_without_a_function_has_no_combiner() {
        let context = [std::ptr::null_mut(); 2];
        let combiner = CCombiner { combine: None, context, element_bytes: 16, commutes: 1 };
        assert!(combiner.combining().is_none());
    }
}
