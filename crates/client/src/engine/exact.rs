//! Exact sums between hosts: floats that are added without rounding but once, at each rank that gets the result. On one host
//! kernels sum exactly.
//!
//! Between ranks go integers, which any path adds in any order: [`Layout`] says how a float becomes some. All ranks have to use
//! one layout, and it follows from the exponents of all their values. So they *survey* these first, in an allreduce of a few
//! integers. Most programs repeat themselves: a layout that was found is *assumed* for the next sum, whose vector takes one
//! integer more, the number of ranks whose values it does not hold. If there are any, the ranks survey after all.
//!
//! A scan shows later ranks less than earlier ones, so its layout is never assumed. Reductions to one rank, or to blocks, are
//! carried by allreduces: else only some ranks would learn that an assumption was wrong.
//!
//! Owns what goes between ranks in each step, as operations on integers. Must not know stages and paths.

use std::borrow::Cow;
use std::ops::Range;
use std::slice;

use half::{bf16, f16};
use tributary_algorithms::Collective;
use tributary_exact::{Element, Layout, Span};
use tributary_inter_host::is_float_sum;
use tributary_wire::{Datatype, Operator};

use super::local::block_of;
use super::plan::Called;
use crate::operation::Operation;

/// Values of one step at most; the others follow in further steps. It bounds the memory for lanes: values whose exponents are
/// all over their range take 48 lanes each, and others one to three.
const VALUES_MAX: usize = 1 << 16;

/// Vectors of so many values have some bits to spare at both ends of an assumed layout, for a survey costs a crossing of the network. They
/// are few enough that values near each other take two lanes for a double and one for a float, and widen with each survey.
const SHORT_VALUES: usize = 64;
const SPARE_BITS: u32 = 12;

/// So many sums in a row for which fewer lanes would have been enough at every rank, and the exponents are surveyed again.
const WIDE_SUMS_MAX: u32 = 16;

/// In the integer that goes with an assumed layout: a rank whose values it does not hold, and one to which fewer lanes would do.
const MISFIT: i64 = 1;
const NARROW: i64 = 1 << 32;

/// Integers of a survey.
const SURVEY: usize = 4;

/// The elements that sums have; complex numbers are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    F16,
    Bf16,
    F32,
    F64,
}

const FORMATS: usize = 4;

/// What a communicator keeps from sum to sum.
#[derive(Default)]
pub(super) struct ExactSums {
    /// By format, of short vectors and of long ones.
    assumed: [[Option<Assumption>; 2]; FORMATS],
    /// What goes between ranks. Kept until the communicator is gone: other ranks of the host may access it when an operation
    /// has failed.
    lanes: Vec<i64>,
}

/// The layout that the next sum of a format takes. The same at all ranks.
#[derive(Clone, Copy)]
struct Assumption {
    /// All exponents that were surveyed, and those to spare.
    span: Span,
    layout: Layout,
    /// Sums in a row for which it was wider than necessary.
    wide_sums: u32,
}

/// A sum under way, at one rank.
pub(super) struct ExactSum {
    operation: Operation,
    format: Format,
    rank: u32,
    ranks: u32,
    /// Values of the whole vector, and where the ones of this step begin.
    values: usize,
    first: usize,
    step: Step,
}

#[derive(Clone, Copy)]
enum Step {
    Survey,
    /// The sum in a layout that may not hold all values.
    Assumed(Layout),
    /// The sum in a layout that was surveyed.
    Sum(Layout),
}

/// An expression with the type of a format's values.
macro_rules! by_format {
    ($format:expr, $type:ident => $of_type:expr) => {
        by_format!($format, $type => $of_type; F16: f16, Bf16: bf16, F32: f32, F64: f64)
    };
    ($format:expr, $type:ident => $of_type:expr; $($name:ident: $element:ty),*) => {
        match $format {
            $(Format::$name => {
                type $type = $element;
                $of_type
            })*
        }
    };
}

/// What follows a step.
pub(super) enum Next {
    /// Another one, carried by this operation.
    Step(Operation),
    /// Nothing: the result is there.
    Over,
    /// Nothing: what came from the others is no survey.
    Refused,
}

/// Whether exact sums are sums of this kind.
pub(super) fn concern(operation: &Operation) -> bool {
    operation.collective.is_reduction()
        && operation.combiner.is_none()
        && is_float_sum(operation.operator, operation.datatype)
}

/// What carries the values, to choose a path by: about as long, for what is assumed is known too late.
pub(super) fn carrier_of(operation: &Operation) -> Operation {
    const USUAL_LANES: u64 = 2;
    let parts = if operation.datatype.is_complex() { 2 } else { 1 };
    Operation {
        collective: carrier_collective(operation.collective),
        datatype: Datatype::I64,
        elements: operation.elements * parts * USUAL_LANES,
        ..*operation
    }
}

fn carrier_collective(collective: Collective) -> Collective {
    match collective {
        Collective::Scan | Collective::Exscan => collective,
        _ => Collective::Allreduce,
    }
}

impl ExactSums {
    /// Begins a sum. Its first step is carried by the operation that comes back.
    pub(super) fn begin(
        &mut self,
        operation: Operation,
        rank: u32,
        ranks: u32,
    ) -> (ExactSum, Operation) {
        let format = Format::of(operation.datatype);
        let values = operation.len_bytes() / format.bytes();
        let mut sum =
            ExactSum { operation, format, rank, ranks, values, first: 0, step: Step::Survey };
        let carried = self.begin_piece(&mut sum);
        (sum, carried)
    }

    /// A step is over.
    pub(super) fn go_on(&mut self, sum: &mut ExactSum) -> Next {
        match sum.step {
            Step::Survey => return self.on_survey(sum),
            Step::Assumed(layout) => {
                let answer = self.lanes[sum.len() * layout.lanes_per_element()];
                if answer % NARROW != 0 {
                    return Next::Step(self.survey(sum));
                }
                self.note_width(sum, answer / NARROW);
                sum.read(layout, &self.lanes);
            }
            Step::Sum(layout) => sum.read(layout, &self.lanes),
        }
        sum.first += sum.len();
        if sum.first < sum.values { Next::Step(self.begin_piece(sum)) } else { Next::Over }
    }

    fn begin_piece(&mut self, sum: &mut ExactSum) -> Operation {
        match *self.assumed_for(sum) {
            Some(assumption) if sum.may_assume() => self.assume(sum, assumption.layout),
            _ => self.survey(sum),
        }
    }

    fn survey(&mut self, sum: &mut ExactSum) -> Operation {
        sum.step = Step::Survey;
        self.integers(SURVEY).copy_from_slice(&sum.span().to_maxima());
        self.carry(Collective::Allreduce, Operator::Max, SURVEY)
    }

    fn on_survey(&mut self, sum: &mut ExactSum) -> Next {
        let maxima = self.lanes.first_chunk::<SURVEY>();
        let Some(found) = maxima.and_then(|maxima| Span::from_maxima(*maxima)) else {
            return Next::Refused;
        };
        // What nobody will assume needs nothing to spare.
        let layout = match sum.may_assume() {
            true => self.widen_assumption(sum, found),
            false => sum.format.layout(found, sum.ranks),
        };
        Next::Step(self.send(sum, layout))
    }

    /// The layout that this sum takes, and the next ones assume: it holds what was found now and before.
    fn widen_assumption(&mut self, sum: &ExactSum, found: Span) -> Layout {
        let assumed = self.assumed_for(sum);
        let spared = if sum.is_short() { sum.format.widen(found, SPARE_BITS) } else { found };
        let span = assumed.map_or(spared, |known| known.span.join(spared));
        let layout = sum.format.layout(span, sum.ranks);
        *assumed = Some(Assumption { span, layout, wide_sums: 0 });
        layout
    }

    /// The sum in a layout that holds every rank's values.
    fn send(&mut self, sum: &mut ExactSum, layout: Layout) -> Operation {
        sum.step = Step::Sum(layout);
        let lanes = sum.len() * layout.lanes_per_element();
        sum.write(layout, self.integers(lanes));
        self.carry(carrier_collective(sum.operation.collective), Operator::Sum, lanes)
    }

    /// The sum in a layout that may not hold this rank's values, and an integer that says so.
    fn assume(&mut self, sum: &mut ExactSum, layout: Layout) -> Operation {
        sum.step = Step::Assumed(layout);
        let lanes = sum.len() * layout.lanes_per_element();
        let (values, answer) = self.integers(lanes + 1).split_at_mut(lanes);
        answer[0] = by_format!(sum.format, E => sum.write_assumed::<E>(layout, values));
        self.carry(Collective::Allreduce, Operator::Sum, lanes + 1)
    }

    /// Takes how many ranks could do with fewer lanes.
    fn note_width(&mut self, sum: &ExactSum, narrow: i64) {
        let assumed = self.assumed_for(sum);
        let Some(assumption) = assumed else { return };
        let is_wide = narrow == i64::from(sum.ranks);
        assumption.wide_sums = if is_wide { assumption.wide_sums + 1 } else { 0 };
        if assumption.wide_sums == WIDE_SUMS_MAX {
            *assumed = None;
        }
    }

    fn assumed_for(&mut self, sum: &ExactSum) -> &mut Option<Assumption> {
        &mut self.assumed[sum.format as usize][usize::from(sum.is_short())]
    }

    /// Room for what goes between ranks.
    fn integers(&mut self, count: usize) -> &mut [i64] {
        if self.lanes.len() < count {
            self.lanes.resize(count, 0);
        }
        &mut self.lanes[..count]
    }

    /// An operation on the first integers, in place.
    fn carry(&mut self, collective: Collective, operator: Operator, integers: usize) -> Operation {
        let target = self.lanes.as_mut_ptr().cast::<u8>();
        Operation {
            collective,
            datatype: Datatype::I64,
            operator,
            elements: integers as u64,
            source: target,
            target,
            ..Operation::BARRIER
        }
    }
}

impl ExactSum {
    /// What the program called: ranks that call another reduction, or floats of another type, are to be told so.
    pub(super) fn call_of_program(&self) -> Called {
        let Operation { collective, datatype, .. } = self.operation;
        let number = collective.root().unwrap_or(0) ^ u32::from(datatype.code()) << 24;
        Called { kind: collective.kind(), number }
    }

    /// Whether the step under way tells the exponents, and adds nothing.
    pub(super) fn is_surveying(&self) -> bool {
        matches!(self.step, Step::Survey)
    }

    /// Values of this step.
    fn len(&self) -> usize {
        (self.values - self.first).min(VALUES_MAX)
    }

    fn is_short(&self) -> bool {
        self.values <= SHORT_VALUES
    }

    /// Whether all ranks would learn that a layout does not hold every rank's values.
    fn may_assume(&self) -> bool {
        carrier_collective(self.operation.collective) == Collective::Allreduce
    }

    /// Whether fewer lanes would do for values of this span. In short vectors they are never too many.
    fn is_narrower(&self, span: Span, layout: Layout) -> bool {
        !self.is_short()
            && self.format.layout(span, self.ranks).lanes_per_element() < layout.lanes_per_element()
    }

    fn span(&self) -> Span {
        by_format!(self.format, E => Span::of::<E>(&self.values::<E>()))
    }

    fn write(&self, layout: Layout, lanes: &mut [i64]) {
        by_format!(self.format, E => layout.write::<E>(&self.values::<E>(), lanes));
    }

    /// Writes the values in a layout that may not hold them, else zeros; the integer that goes with them.
    fn write_assumed<E: Element>(&self, layout: Layout, lanes: &mut [i64]) -> i64 {
        let values = self.values::<E>();
        let span = Span::of::<E>(&values);
        if !layout.holds(span) {
            lanes.fill(0);
            return MISFIT;
        }
        layout.write::<E>(&values, lanes);
        if self.is_narrower(span, layout) { NARROW } else { 0 }
    }

    /// This rank's values of this step.
    fn values<E: Element>(&self) -> Cow<'_, [E]> {
        let source = self.operation.source.cast::<E>().wrapping_add(self.first);
        if source.is_aligned() {
            // SAFETY: the source holds all values until the operation is over, as the caller of `Communicator::run` or
            // `start` promised, and nobody changes them; every bit pattern is a value.
            return Cow::Borrowed(unsafe { slice::from_raw_parts(source, self.len()) });
        }
        // SAFETY: as above, but for the alignment.
        let value = |at| unsafe { source.add(at).read_unaligned() };
        Cow::Owned((0..self.len()).map(value).collect())
    }

    /// Writes this rank's part of the result.
    fn read(&self, layout: Layout, lanes: &[i64]) {
        let block = self.block();
        // Which values of this step are part of this rank's result.
        let (step_end, block_end) = (self.first + self.len(), block.end);
        let wanted = block.start.clamp(self.first, step_end)..block_end.clamp(self.first, step_end);
        if wanted.is_empty() {
            return;
        }
        let per_value = layout.lanes_per_element();
        let places = wanted.start - self.first..wanted.end - self.first;
        let lanes = &lanes[places.start * per_value..places.end * per_value];
        let first = wanted.start - block.start;
        by_format!(self.format, E => self.write_result::<E>(layout, lanes, first, wanted.len()));
    }

    fn write_result<E: Element>(&self, layout: Layout, lanes: &[i64], first: usize, len: usize) {
        let target = self.operation.target.cast::<E>().wrapping_add(first);
        if target.is_aligned() {
            // SAFETY: the target has room for this rank's part of the result, and nobody else uses it, as the caller of
            // `Communicator::run` or `start` promised; every bit pattern is a value. Where it is the source, its values
            // up to here have been added, and no slice of them is left.
            layout.read::<E>(lanes, unsafe { slice::from_raw_parts_mut(target, len) });
            return;
        }
        let mut result = vec![E::from_bits_u64(0); len];
        layout.read::<E>(lanes, &mut result);
        for (at, value) in result.into_iter().enumerate() {
            // SAFETY: as above, but for the alignment.
            unsafe { target.add(at).write_unaligned(value) };
        }
    }

    /// Which values of the vector are this rank's result.
    fn block(&self) -> Range<usize> {
        let has_none = match self.operation.collective {
            Collective::Reduce { root } => root != self.rank,
            Collective::Exscan => self.rank == 0,
            _ => false,
        };
        if has_none {
            return 0..0;
        }
        let Operation { collective, blocks, elements, .. } = self.operation;
        if collective != Collective::ReduceScatter {
            return 0..self.values;
        }
        // SAFETY: the blocks are valid until the operation is over, as the caller of `Communicator::run` or `start` promised.
        let block = unsafe { block_of(blocks, self.rank, self.ranks, elements) };
        let parts = self.values / elements as usize;
        block.start as usize * parts..block.end as usize * parts
    }
}

impl Format {
    /// That of a type's values, or of their parts.
    fn of(datatype: Datatype) -> Self {
        match datatype {
            Datatype::F16 => Self::F16,
            Datatype::Bf16 => Self::Bf16,
            Datatype::F32 | Datatype::F32Complex => Self::F32,
            Datatype::F64 | Datatype::F64Complex => Self::F64,
            other => unreachable!("{other:?} has no floats"),
        }
    }

    fn bytes(self) -> usize {
        by_format!(self, E => size_of::<E>())
    }

    fn layout(self, span: Span, ranks: u32) -> Layout {
        by_format!(self, E => Layout::new::<E>(span, ranks))
    }

    fn widen(self, span: Span, bits: u32) -> Span {
        by_format!(self, E => span.widen::<E>(bits))
    }
}
