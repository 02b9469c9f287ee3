//! The full-range form of a sum: one chunk for every 32 bits of the format's range, with room for carries.

use crate::class::Class;
use crate::format::{Element, Format, Products, split};
use crate::rounding::round;
use crate::window::{Overflow, Window};

/// Deposits between two propagations of carries. A deposit adds less than 2^32 to the magnitude of a chunk, and a chunk
/// holds 2^63.
const DEPOSITS: u32 = 1 << 30;

/// Bits of the integer that a chunk stands for.
const CHUNK_BITS: u32 = 32;

/// A sum over the whole range of its format (a Kulisch accumulator).
///
/// Carries stay in their chunk until 2^30 values were added, then they are propagated; the sum is exact at any time.
#[derive(Clone, Copy, Debug)]
pub struct Accumulator<F: Format> {
    class: Class,
    deposits_left: u32,
    chunks: F::Chunks,
}

impl<F: Format> Default for Accumulator<F> {
    fn default() -> Self {
        Self { class: Class::Empty, deposits_left: DEPOSITS, chunks: F::ZERO_CHUNKS }
    }
}

impl<E: Element + Format<Rounded = E>> Accumulator<E> {
    /// Adds a value.
    #[inline]
    pub fn add(&mut self, value: E) {
        let parts = split(value);
        self.class = self.class.join(parts.class);
        if parts.class == Class::Finite {
            self.deposit(parts.is_negative, parts.significand, parts.position);
        }
    }
}

impl<E: Element> Accumulator<Products<E>>
where
    Products<E>: Format<Rounded = E>,
{
    /// Adds the product of two values, exact.
    pub fn add_product(&mut self, left: E, right: E) {
        let (left, right) = (split(left), split(right));
        let is_negative = left.is_negative != right.is_negative;
        let class = class_of_product(&left, &right, is_negative);
        self.class = self.class.join(class);
        if class == Class::Finite {
            let product = u128::from(left.significand) * u128::from(right.significand);
            let position = left.position + right.position;
            self.deposit(is_negative, product as u64, position);
            let high = (product >> 64) as u64;
            if high != 0 {
                self.deposit(is_negative, high, position + 64);
            }
        }
    }
}

fn class_of_product(
    left: &crate::format::Parts,
    right: &crate::format::Parts,
    is_negative: bool,
) -> Class {
    let is_zero = |parts: &crate::format::Parts| parts.class.is_finite() && parts.significand == 0;
    if left.class == Class::Nan || right.class == Class::Nan {
        Class::Nan
    } else if !left.class.is_finite() || !right.class.is_finite() {
        match (is_zero(left) || is_zero(right), is_negative) {
            (true, _) => Class::Nan,
            (false, true) => Class::NegativeInfinity,
            (false, false) => Class::PositiveInfinity,
        }
    } else if is_negative && (is_zero(left) || is_zero(right)) {
        Class::NegativeZero
    } else {
        Class::Finite
    }
}

/// Equal sums, however they were added up.
impl<F: Format> PartialEq for Accumulator<F> {
    fn eq(&self, other: &Self) -> bool {
        self.to_window() == other.to_window()
    }
}

impl<F: Format> Eq for Accumulator<F> {}

impl<F: Format> Accumulator<F> {
    /// What the sum is besides its integer.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Adds another sum. On an error nothing has changed.
    pub fn merge(&mut self, other: &Self) -> Result<(), Overflow> {
        self.merge_chunks(other.class, other.propagated_chunks().as_ref())
    }

    /// Adds a sum in compact form. On an error nothing has changed.
    pub fn merge_window(&mut self, window: &Window<F>) -> Result<(), Overflow> {
        let mut sum = *self;
        sum.propagate();
        let chunks = &mut sum.chunks.as_mut()[2 * window.first()..];
        for (pair, &word) in chunks.chunks_exact_mut(2).zip(window.words()) {
            pair[0] += i64::from(word as u32);
            pair[1] += (word >> CHUNK_BITS) as i64;
        }
        // The topmost bit of the window has the weight of minus itself: what lies above is all ones.
        if window.words().last().is_some_and(|&top| top >> 63 == 1) {
            match chunks.get_mut(2 * window.words().len()) {
                Some(chunk) => *chunk -= 1,
                None => chunks[2 * window.words().len() - 1] -= 1 << CHUNK_BITS,
            }
        }
        self.replace_if_in_range(sum, window.class())
    }

    /// The sum in compact form.
    #[must_use]
    pub fn to_window(&self) -> Window<F> {
        let mut window = Window::<F> { class: self.class, ..Window::default() };
        if self.class == Class::Finite {
            let mut sum = *self;
            sum.propagate();
            window.len = F::WORDS;
            let pairs = sum.chunks.as_ref().chunks_exact(2);
            for (word, pair) in window.words.as_mut().iter_mut().zip(pairs) {
                *word = pair[0] as u64 | (pair[1] as u64) << CHUNK_BITS;
            }
        }
        window.canonical()
    }

    /// Rounds the sum to nearest, ties to even.
    #[must_use]
    pub fn round(&self) -> F::Rounded {
        let window = self.to_window();
        round::<F>(window.class, window.first, window.words())
    }

    /// Makes the sum one to which a contribution of that class was added.
    #[cfg(feature = "std")]
    pub(crate) fn join(&mut self, class: Class) {
        self.class = self.class.join(class);
    }

    /// Adds `significand * 2^position` units.
    #[inline]
    pub(crate) fn deposit(&mut self, is_negative: bool, significand: u64, position: u32) {
        if self.deposits_left == 0 {
            self.propagate();
        }
        self.deposits_left -= 1;
        let chunk = (position / CHUNK_BITS) as usize;
        let shift = position % CHUNK_BITS;
        let low = (significand << shift) & u64::from(u32::MAX);
        // In two steps: a shift by 64 at once would be undefined.
        let above = (significand >> (CHUNK_BITS - 1 - shift)) >> 1;
        let sign = -i64::from(is_negative);
        let signed = |part: u64| (part as i64 ^ sign) - sign;
        let chunks = &mut self.chunks.as_mut()[chunk..chunk + 3];
        chunks[0] += signed(low);
        chunks[1] += signed(above & u64::from(u32::MAX));
        chunks[2] += signed(above >> CHUNK_BITS);
    }

    /// Chunks of 32 bits each, but for the topmost, which has the sign.
    pub(crate) fn propagated_chunks(&self) -> F::Chunks {
        let mut sum = *self;
        sum.propagate();
        sum.chunks
    }

    /// Adds a sum whose chunks have a magnitude of 2^62 at most. On an error nothing has changed.
    pub(crate) fn merge_chunks(&mut self, class: Class, chunks: &[i64]) -> Result<(), Overflow> {
        let mut sum = *self;
        sum.propagate();
        if class.is_finite() {
            for (chunk, added) in sum.chunks.as_mut().iter_mut().zip(chunks) {
                *chunk += added;
            }
        }
        self.replace_if_in_range(sum, class)
    }

    /// Takes the carries out of every chunk but the topmost, which keeps the sign.
    fn propagate(&mut self) {
        let chunks = self.chunks.as_mut();
        let top = chunks.len() - 1;
        let mut carry = 0;
        for chunk in &mut chunks[..top] {
            let sum = *chunk + carry;
            carry = sum >> CHUNK_BITS;
            *chunk = sum & i64::from(u32::MAX);
        }
        chunks[top] += carry;
        self.deposits_left = DEPOSITS;
    }

    fn replace_if_in_range(&mut self, mut sum: Self, class: Class) -> Result<(), Overflow> {
        sum.propagate();
        sum.class = self.class.join(class);
        let top = sum.chunks.as_ref().last().copied().unwrap_or(0);
        if !sum.class.is_finite() {
            // The integer counts no more.
            sum.chunks = F::ZERO_CHUNKS;
        } else if top >> (CHUNK_BITS - 2) != 0 && top >> (CHUNK_BITS - 2) != -1 {
            return Err(Overflow);
        }
        *self = sum;
        Ok(())
    }
}
