//! The compact form of a sum: the words around its exponents.

use crate::class::Class;
use crate::format::{Element, Format, split};
use crate::rounding::round;

/// The sum would leave the accumulator's full width.
///
/// That takes at least 2^76 contributions of binary64; the crate's page has the other formats.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

impl core::fmt::Display for Overflow {
    fn fmt(&self, formatter: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        formatter.write_str("the sum leaves the full width of its accumulator")
    }
}

impl core::error::Error for Overflow {}

/// A sum as an integer in two's complement, of which only the words are kept that say something.
///
/// The window grows as a merge needs it. Equal sums are equal, and have equal [`canonical`](Self::canonical)
/// windows, whatever was merged with what.
#[derive(Clone, Copy, Debug)]
pub struct Window<F: Format> {
    pub(crate) class: Class,
    pub(crate) first: usize,
    pub(crate) len: usize,
    pub(crate) words: F::Words,
}

impl<F: Format> Default for Window<F> {
    fn default() -> Self {
        Self { class: Class::Empty, first: 0, len: 0, words: F::ZERO_WORDS }
    }
}

impl<F: Format> PartialEq for Window<F> {
    fn eq(&self, other: &Self) -> bool {
        let (left, right) = (self.canonical(), other.canonical());
        left.class == right.class && left.first == right.first && left.words() == right.words()
    }
}

impl<F: Format> Eq for Window<F> {}

impl<E: Element + Format<Rounded = E>> From<E> for Window<E> {
    fn from(value: E) -> Self {
        let parts = split(value);
        let mut window = Self { class: parts.class, ..Self::default() };
        if parts.class == Class::Finite && parts.significand != 0 {
            let shifted = i128::from(parts.significand) << (parts.position % 64);
            let integer = if parts.is_negative { -shifted } else { shifted };
            // The highest value of a format never reaches its top word, so both words exist.
            window.first = (parts.position / 64) as usize;
            window.len = 2;
            let words = window.words.as_mut();
            (words[0], words[1]) = (integer as u64, (integer >> 64) as u64);
        }
        window.canonical()
    }
}

impl<F: Format> Window<F> {
    /// What the sum is besides its integer.
    #[must_use]
    pub fn class(&self) -> Class {
        self.class
    }

    /// Which word of the full width is the window's lowest.
    #[must_use]
    pub fn first(&self) -> usize {
        self.first
    }

    /// The window's words, the lowest first.
    #[must_use]
    pub fn words(&self) -> &[u64] {
        &self.words.as_ref()[..self.len]
    }

    /// Adds another sum. On an error nothing has changed.
    #[inline]
    pub fn merge(&mut self, other: &Self) -> Result<(), Overflow> {
        if self.first == other.first
            && self.len == other.len
            && self.first + self.len < F::WORDS
            && self.class == Class::Finite
            && other.class == Class::Finite
        {
            self.add_aligned(other);
            return Ok(());
        }
        self.merge_any(other)
    }

    /// Rounds the sum to nearest, ties to even.
    #[must_use]
    pub fn round(&self) -> F::Rounded {
        round::<F>(self.class, self.first, self.words())
    }

    /// The same sum in the fewest words: the only window that is encoded.
    #[must_use]
    pub fn canonical(&self) -> Self {
        let mut window = Self { class: self.class, ..Self::default() };
        if self.class != Class::Finite {
            return window;
        }
        let words = self.words();
        let Some(low) = words.iter().position(|&word| word != 0) else { return window };
        let mut high = words.len();
        while high - low > 1 && words[high - 1] == sign_of(words[high - 2]) {
            high -= 1;
        }
        window.first = self.first + low;
        window.len = high - low;
        window.words.as_mut()[..high - low].copy_from_slice(&words[low..high]);
        window
    }

    /// Adds a window of the same place and length, with a word above both for the carry.
    #[inline]
    fn add_aligned(&mut self, other: &Self) {
        let len = self.len;
        let words = self.words.as_mut();
        let added = &other.words.as_ref()[..len];
        let Some(top) = len.checked_sub(1) else { return };
        let (left, right) = (words[top], added[top]);
        match len {
            2 => add_words::<2>(words, added),
            3 => add_words::<3>(words, added),
            4 => add_words::<4>(words, added),
            _ => add_slices(&mut words[..len], added),
        }
        // Both have one sign and the result has the other: its sign takes a word more.
        if ((left ^ words[top]) & (right ^ words[top])) >> 63 == 1 {
            words[len] = sign_of(left);
            self.len = len + 1;
        }
    }

    #[inline(never)]
    fn merge_any(&mut self, other: &Self) -> Result<(), Overflow> {
        let class = self.class.join(other.class);
        if !class.is_finite() {
            *self = Self { class, ..Self::default() };
            return Ok(());
        }
        if other.len == 0 || self.len == 0 {
            if self.len == 0 {
                *self = *other;
            }
            self.class = class;
            return Ok(());
        }
        let first = self.first.min(other.first);
        let end = (self.first + self.len).max(other.first + other.len);
        // One word above both takes any carry.
        let end = (end + 1).min(F::WORDS);
        let mut sum = self.widen(first, end);
        add_slices(&mut sum.words.as_mut()[..end - first], other.widen(first, end).words());
        if !sum.is_in_range() {
            return Err(Overflow);
        }
        *self = Self { class, ..sum.canonical() };
        Ok(())
    }

    /// Whether the topmost bit of the full width is free, so that a sum of two such windows cannot wrap.
    pub(crate) fn is_in_range(&self) -> bool {
        let top = self.words().last().copied().unwrap_or(0);
        self.first + self.len < F::WORDS || top >> 63 == top >> 62 & 1
    }

    /// The same sum in the words from `first` to `end`, which include its own.
    fn widen(&self, first: usize, end: usize) -> Self {
        let mut words = F::ZERO_WORDS;
        let low = self.first - first;
        let filled = &mut words.as_mut()[..end - first];
        filled[low..low + self.len].copy_from_slice(self.words());
        let sign = self.words().last().map_or(0, |&top| sign_of(top));
        filled[low + self.len..].fill(sign);
        Self { class: self.class, first, len: end - first, words }
    }
}

fn sign_of(word: u64) -> u64 {
    ((word as i64) >> 63) as u64
}

#[inline(always)]
fn add_words<const LEN: usize>(words: &mut [u64], added: &[u64]) {
    add_slices(&mut words[..LEN], &added[..LEN]);
}

#[inline(always)]
fn add_slices(words: &mut [u64], added: &[u64]) {
    let mut carry = false;
    for (word, &added) in words.iter_mut().zip(added) {
        let (sum, above) = word.overflowing_add(added);
        let (sum, further) = sum.overflowing_add(u64::from(carry));
        *word = sum;
        carry = above | further;
        #[cfg(feature = "planted-bugs")]
        {
            carry &= !crate::planted::loses_carry(sum);
        }
    }
}
