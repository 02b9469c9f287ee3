//! Exact sums: the correctly rounded value of the real sum, whatever the order, the grouping and the number of merges.
//!
//! Owns the arithmetic: accumulators, their merges, the one rounding. Must not know frames, groups, hosts or threads, do I/O
//! or allocate. [`Accumulator`] takes values, [`Window`] is the compact form that travels and is merged. A complex sum is that of its two parts.
//!
//! ```
//! use tributary_exact::Accumulator;
//!
//! let values = [1e100, 1.0, -1e100];
//! assert_eq!(values.iter().sum::<f64>(), 0.0);
//! let mut sum = Accumulator::<f64>::default();
//! values.into_iter().for_each(|value| sum.add(value));
//! assert_eq!(sum.round(), 1.0);
//! ```
//!
//! # Meaning
//! A finite sum is the real sum, rounded once to nearest, ties to even. It is an infinity only if the rounded value is
//! beyond the largest finite one: partial sums that overflow and cancel leave no trace. Further:
//! * A NaN, or infinities of both signs, give the quiet NaN whose sign and payload are zero. Payloads are not kept.
//! * Infinities of one sign give that infinity, whatever the finite contributions are.
//! * The sum is -0 if every contribution is -0, or if the sum of [`Products`] is negative and rounds to zero. Every other sum that is
//!   zero is +0, as is the sum of nothing.
//! * Subnormal contributions and results count like all others, whatever the processor's mode for them.
//!
//! # Bounds
//! An accumulator of full width holds any 2^86 contributions of binary16, 2^121 of bfloat16, 2^105 of binary32, 2^76 of
//! binary64, 2^84 products of binary32, 2^90 of binary64. A merge that would leave this width is refused
//! ([`Overflow`]) and changes nothing. Inside it carries are deferred: [`Accumulator`] propagates them after 2^30 additions by itself,
//! and a [`Window`] takes a word more.
//!
//! # Lanes
//! A reduction of integers can add vectors exactly, element by element. The ranks agree on the [`Span`] of all their values, which
//! takes one reduction to the maximum, and derive the same [`Layout`] from it: how many integers of 64 bits, the lanes, an
//! element has. Each rank writes its vector as lanes, any sum of integers adds them, and each rank reads the rounded sums.
//! Values within a narrow range of exponents take one or two lanes. [`sum_vectors`] sums vectors that lie in one memory.
//!
//! # Arrays
//! With the feature `std`, which finds out what the processor can do, [`exact_sum`] and [`exact_dot`] take long arrays, and
//! lanes are written and read by vector instructions. Without it the crate has no unsafe code.
#![no_std]
#![cfg_attr(not(feature = "std"), forbid(unsafe_code))]
#![deny(unsafe_code)]

#[cfg(feature = "std")]
extern crate std;

mod accumulator;
#[cfg(feature = "std")]
mod any;
#[cfg(feature = "std")]
mod arrays;
mod class;
mod digits;
mod encoding;
mod format;
mod integers;
mod isa;
mod lanes;
mod mode;
#[cfg(feature = "planted-bugs")]
pub mod planted;
mod rounding;
mod span;
mod vectors;
mod window;

pub use accumulator::Accumulator;
#[cfg(feature = "std")]
pub use any::{AddError, AnySum};
#[cfg(feature = "std")]
pub use arrays::{ArrayElement, LengthsDiffer, exact_dot, exact_sum};
pub use class::Class;
pub use encoding::{DecodeError, HEADER_BYTES, VERSION, encoded_bytes_max};
pub use format::{Element, Format, Products};
pub use integers::integers_per_sum;
pub use isa::Isa;
pub use lanes::Layout;
pub use span::Span;
pub use vectors::{sum_two, sum_vectors};
pub use window::{Overflow, Window};
