//! Sums of several vectors that lie in one memory, element by element.
//!
//! No exponents have to be agreed on: each block of the vectors has a layout of its own.

use core::ops::Range;

use crate::accumulator::Accumulator;
use crate::digits::SettleNans;
use crate::format::{Element, Format};
use crate::isa::Isa;
use crate::lanes::Layout;
use crate::span::Span;

/// Values of a block: few, so that exponents are near each other, and that lanes stay in the first cache.
const BLOCK: usize = 256;
const LANES: usize = BLOCK * Layout::DIRECT_LANES_MAX;

/// Writes the rounded sums of `count` vectors, one at least. `values` gives a range of one of them.
pub fn sum_vectors<'a, E: Element + Format<Rounded = E>>(
    target: &mut [E],
    count: u32,
    values: impl Fn(u32, Range<usize>) -> &'a [E],
) {
    let mut lanes = [0_i64; LANES];
    let mut first = 0;
    for block in target.chunks_mut(BLOCK) {
        let range = first..first + block.len();
        first = range.end;
        let parts = (0..count).map(|at| values(at, range.clone()));
        let isa = Isa::for_values(block.len());
        let span =
            parts.clone().fold(Span::EMPTY, |span, part| span.join(Span::of_with(isa, part)));
        let layout = Layout::new::<E>(span, count);
        let Some(lanes) = layout.direct_lanes(block.len()).map(|wanted| &mut lanes[..wanted])
        else {
            sum_one_by_one(block, parts);
            continue;
        };
        lanes.fill(0);
        parts.for_each(|part| layout.add_with(isa, part, lanes));
        layout.read_with(isa, lanes, block);
    }
}

/// Makes every NaN the one that exact sums give.
pub fn settle_nans<E: Element>(values: &mut [E]) {
    Isa::for_values(values.len()).run(SettleNans { values });
}

/// Sums of values whose exponents lie far apart.
fn sum_one_by_one<'a, E: Element + Format<Rounded = E>>(
    target: &mut [E],
    parts: impl Iterator<Item = &'a [E]> + Clone,
) {
    for (at, sum) in target.iter_mut().enumerate() {
        let mut all = Accumulator::<E>::default();
        parts.clone().for_each(|part| all.add(part[at]));
        *sum = all.round();
    }
}
