//! A sum as integers that any reduction of integers adds: the form in which the sums of many ranks meet.
//!
//! Their number depends on the format alone, so every rank has as many, and networks and libraries that know nothing of
//! exact sums can add them, in any order.

use crate::accumulator::Accumulator;
use crate::class::Class;
use crate::format::Format;
use crate::window::Overflow;

/// Integers before the chunks. They count, in halves of 32 bits, the sums that have something.
const CLASS_INTEGERS: usize = 2;

/// The largest magnitude of an integer that is taken: what 2^30 ranks reach.
const LARGEST: u64 = 1 << 62;

/// How many integers a sum of this format has.
#[must_use]
pub const fn integers_per_sum<F: Format>() -> usize {
    CLASS_INTEGERS + 2 * F::WORDS
}

impl<F: Format> Accumulator<F> {
    /// Writes the sum as [`integers_per_sum`] integers. Those of up to 2^30 sums may be added, each to the ones in the
    /// same place.
    ///
    /// # Panics
    /// If there is another number of integers.
    pub fn write_integers(&self, integers: &mut [i64]) {
        assert_eq!(integers.len(), integers_per_sum::<F>(), "the integers of one sum");
        let (classes, chunks) = integers.split_at_mut(CLASS_INTEGERS);
        classes.copy_from_slice(&counts_of(self.class()));
        match self.class() {
            Class::Finite => chunks.copy_from_slice(self.propagated_chunks().as_ref()),
            _ => chunks.fill(0),
        }
    }

    /// Adds the sum whose integers, or whose added integers, these are. On an error nothing has changed.
    ///
    /// # Panics
    /// If there is another number of integers.
    pub fn merge_integers(&mut self, integers: &[i64]) -> Result<(), Overflow> {
        assert_eq!(integers.len(), integers_per_sum::<F>(), "the integers of one sum");
        let (classes, chunks) = integers.split_at(CLASS_INTEGERS);
        let class = class_of([classes[0], classes[1]]);
        if class.is_finite() && chunks.iter().any(|chunk| chunk.unsigned_abs() > LARGEST) {
            return Err(Overflow);
        }
        self.merge_chunks(class, chunks)
    }
}

/// A NaN counts as infinities of both signs: their sum is one.
fn counts_of(class: Class) -> [i64; CLASS_INTEGERS] {
    const HIGH: i64 = 1 << 32;
    match class {
        Class::Empty => [0, 0],
        Class::NegativeZero => [0, HIGH],
        Class::Finite => [0, 1],
        Class::PositiveInfinity => [1, 0],
        Class::NegativeInfinity => [HIGH, 0],
        Class::Nan => [HIGH + 1, 0],
    }
}

fn class_of(counts: [i64; CLASS_INTEGERS]) -> Class {
    let has = |count: i64, class| if count == 0 { Class::Empty } else { class };
    let low = |count: i64| count & i64::from(u32::MAX);
    has(low(counts[0]), Class::PositiveInfinity)
        .join(has(counts[0] >> 32, Class::NegativeInfinity))
        .join(has(low(counts[1]), Class::Finite))
        .join(has(counts[1] >> 32, Class::NegativeZero))
}
