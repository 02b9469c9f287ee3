//! Reduction kernels: every operator on every datatype, over plain bytes.
//!
//! Owns the meaning and the speed of combining elements. Must not know frames, groups, children or
//! threads. Start at [`Kernel`]. An aggregation node merges many contributions into one, and uses
//! [`Accumulation`] instead.
//!
//! # Order
//! An operation is `left OP right`, and `left` is always the contribution of the lower rank:
//! [`Kernel::fold`] computes `target = target OP source`. Nothing is reassociated or reordered
//! across elements, so equal call orders give equal bits.
//!
//! # Meaning
//! * Integers wrap, as two's complement does (`Sum`, `Product`).
//! * `Min` is `if right < left { right } else { left }` and `Max` is
//!   `if right > left { right } else { left }`, on floats too, except that a NaN anywhere makes the result
//!   a NaN: `right` if it is one, else `left`. So neither timing nor placement decides whether a NaN
//!   is seen. Between -0.0 and +0.0 `left` stays.
//! * `MinLoc` and `MaxLoc` take the smaller (larger) value with its index, and between equal values
//!   the smaller index (MPI 4.1 §6.9.4). A NaN is taken before every number, and NaNs are equal.
//!   Padding bytes of a pair come out as zero.
//!   An index may be a float, as in Fortran's pairs.
//! * Logical operators give 1 or 0 (MPI 4.1 §6.9.2).
//! * A complex sum is that of the parts. A complex product (a + bi)(c + di) is (ac - bd) + (ad + bc)i,
//!   every product, the difference and the sum rounded, never fused. Where both parts come out as NaN
//!   although a factor is infinite, or a product of parts overflows, the result is the infinite number
//!   that C11 G.5.1 recovers: the bits of C's `*` on complex numbers, which MPI libraries use.
//! * 16-bit floats are computed as binary32 and rounded to nearest, ties to even: once for each
//!   call of [`Kernel`], once for all contributions with [`Accumulation`]. NaNs come out quiet.
//!
//! # Equal bits
//! All instruction sets give the same bits, with one exception: the payload and sign of a NaN that
//! `Sum` or `Product` *made* depend on the processor. (`Min`, `Max`, `MinLoc` and `MaxLoc` keep NaN
//! payloads.) The kernels assume the default floating-point environment: a process that flushes
//! subnormals to zero gets flushed sums.
//!
//! # Alignment
//! All entry points take byte slices of any alignment. Elements are in little-endian order, as on the
//! wire. Tributary does not support big-endian machines.

#[cfg(target_endian = "big")]
compile_error!("elements travel in little-endian order and are not swapped");

mod accumulator;
mod arch;
mod body;
mod dispatch;
mod element;
mod half_body;
mod isa;
mod kernel;
mod lanes;
mod operation;
pub mod oracle;

pub use accumulator::{Accumulation, accumulator_bytes, accumulator_bytes_max};
pub use isa::Isa;
pub use kernel::{Kernel, combine_into, fold};
