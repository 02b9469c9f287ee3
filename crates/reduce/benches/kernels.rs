//! Speed of the kernels beside a plain memory copy and beside the oracle.
//!
//! `cargo bench -p tributary-reduce [-- --json]`. Every figure is memory traffic as the program
//! asks for it, bytes read plus bytes written: a copy of n bytes moves 2n, `target = target OP
//! source` and `target = left OP right` move 3n. What is compared runs in turns, a few milliseconds
//! each, so that a slow spell of the machine hits all alike; the median turn counts.
//!
//! The oracle is compiled like everything here (release profile, the target's base instruction
//! set) and looks its operator up for every element. `portable` is the plain loop of the kernels,
//! which the compiler vectorises with that base instruction set.

use std::hint::black_box;
use std::io::{self, Write};
use std::time::{Duration, Instant};

use tributary_reduce::{Accumulation, Isa, Kernel, accumulator_bytes, oracle};
use tributary_wire::{Datatype, Operator};

/// Turns of each contender; odd, so that one of them is the median.
const TURNS: usize = 31;

/// How long one turn takes at least.
const TURN: Duration = Duration::from_millis(2);

/// Vector lengths of the first table: two vectors inside L2, around L2, far outside it.
const LENGTHS_BYTES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 16 << 20];

/// Vector length of the table of datatypes.
const DATATYPES_LENGTH_BYTES: usize = 256 << 10;

/// A cache line, on which all vectors start.
const LINE_BYTES: usize = 64;

fn main() -> io::Result<()> {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut report = Report { json, output: io::stdout().lock() };
    report.heading("float sum beside a memory copy")?;
    for length_bytes in LENGTHS_BYTES {
        let mut contenders = float_sum_contenders(length_bytes);
        report.rows("f32", length_bytes, &measure(&mut contenders))?;
    }
    report.heading("every datatype: sum, or minloc of pairs")?;
    for datatype in Datatype::ALL {
        let mut contenders = datatype_contenders(datatype, DATATYPES_LENGTH_BYTES);
        report.rows(datatype.name(), DATATYPES_LENGTH_BYTES, &measure(&mut contenders))?;
    }
    Ok(())
}

/// One thing to measure.
struct Contender {
    name: String,
    /// Bytes read and written by one call.
    traffic_bytes: usize,
    call: Box<dyn FnMut()>,
    /// Calls in a turn.
    calls: u32,
}

/// What was measured of a contender.
struct Figure {
    name: String,
    /// Traffic of the median turn, in 10^9 bytes a second.
    gigabytes_per_second: f64,
}

/// A vector on a cache line of its own.
struct Vector {
    memory: Vec<u8>,
    start: usize,
    len_bytes: usize,
}

impl Vector {
    /// A vector of ones of `datatype`, which stay ordinary numbers whatever is summed.
    fn of_ones(datatype: Datatype, len_bytes: usize) -> Self {
        let one: &[u8] = match datatype {
            Datatype::F16 => &0x3c00u16.to_le_bytes(),
            Datatype::Bf16 => &0x3f80u16.to_le_bytes(),
            Datatype::F32 | Datatype::F32Index => &1f32.to_le_bytes(),
            Datatype::F64 | Datatype::F64Index => &1f64.to_le_bytes(),
            _ => &[1],
        };
        let mut vector = Self::zeroed(len_bytes);
        for element in vector.bytes_mut().chunks_exact_mut(datatype.size_bytes()) {
            element[..one.len()].copy_from_slice(one);
        }
        vector
    }

    fn zeroed(len_bytes: usize) -> Self {
        // Ones, then zeros: pages that were never written would all be the same one.
        let mut memory = vec![1; len_bytes + LINE_BYTES];
        memory.fill(0);
        let start = memory.as_ptr().align_offset(LINE_BYTES);
        Self { memory, start, len_bytes }
    }

    fn bytes(&self) -> &[u8] {
        &self.memory[self.start..][..self.len_bytes]
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.memory[self.start..][..self.len_bytes]
    }
}

fn contender(name: &str, traffic_bytes: usize, call: impl FnMut() + 'static) -> Contender {
    Contender { name: name.into(), traffic_bytes, call: Box::new(call), calls: 1 }
}

fn copy_contender(datatype: Datatype, length_bytes: usize) -> Contender {
    let source = Vector::of_ones(datatype, length_bytes);
    let mut target = Vector::of_ones(datatype, length_bytes);
    contender("copy", 2 * length_bytes, move || {
        black_box(target.bytes_mut()).copy_from_slice(black_box(source.bytes()));
    })
}

fn oracle_contender(operator: Operator, datatype: Datatype, length_bytes: usize) -> Contender {
    let source = Vector::of_ones(datatype, length_bytes);
    let mut target = Vector::of_ones(datatype, length_bytes);
    contender("oracle", 3 * length_bytes, move || {
        let (target, source) = (black_box(target.bytes_mut()), black_box(source.bytes()));
        oracle::fold(black_box(operator), black_box(datatype), target, source);
    })
}

fn fold_contender(kernel: Kernel, length_bytes: usize) -> Contender {
    let source = Vector::of_ones(kernel.datatype(), length_bytes);
    let mut target = Vector::of_ones(kernel.datatype(), length_bytes);
    contender(kernel.isa().name(), 3 * length_bytes, move || {
        kernel.fold(black_box(target.bytes_mut()), black_box(source.bytes()));
    })
}

fn combine_contender(kernel: Kernel, length_bytes: usize) -> Contender {
    let left = Vector::of_ones(kernel.datatype(), length_bytes);
    let right = Vector::of_ones(kernel.datatype(), length_bytes);
    let mut target = Vector::zeroed(length_bytes);
    contender("combine_into", 3 * length_bytes, move || {
        let (left, right) = (black_box(left.bytes()), black_box(right.bytes()));
        kernel.combine_into(black_box(target.bytes_mut()), left, right);
    })
}

/// One later contribution: reads it and the accumulator, writes the accumulator.
fn accumulate_contender(accumulation: Accumulation, length_bytes: usize) -> Contender {
    let datatype = accumulation.kernel().datatype();
    let source = Vector::of_ones(datatype, length_bytes);
    let elements = length_bytes / datatype.size_bytes();
    let mut accumulator = Vector::zeroed(accumulator_bytes(datatype, elements));
    accumulation.begin(accumulator.bytes_mut(), source.bytes());
    let traffic_bytes = length_bytes + 2 * accumulator.bytes().len();
    contender("accumulate", traffic_bytes, move || {
        accumulation.fold(black_box(accumulator.bytes_mut()), black_box(source.bytes()));
    })
}

fn float_sum_contenders(length_bytes: usize) -> Vec<Contender> {
    let (operator, datatype) = (Operator::Sum, Datatype::F32);
    let mut contenders = vec![copy_contender(datatype, length_bytes)];
    contenders.extend(
        Isa::ALL
            .into_iter()
            .filter_map(|isa| Kernel::with_isa(isa, operator, datatype))
            .map(|kernel| fold_contender(kernel, length_bytes)),
    );
    let best = Kernel::new(operator, datatype).expect("floats have a sum");
    contenders.push(combine_contender(best, length_bytes));
    contenders.push(oracle_contender(operator, datatype, length_bytes));
    contenders
}

fn datatype_contenders(datatype: Datatype, length_bytes: usize) -> Vec<Contender> {
    let operator = if datatype.is_pair() { Operator::MinLoc } else { Operator::Sum };
    let accumulation = Accumulation::new(operator, datatype).expect("the operator suits the type");
    vec![
        copy_contender(datatype, length_bytes),
        fold_contender(*accumulation.kernel(), length_bytes),
        accumulate_contender(accumulation, length_bytes),
        oracle_contender(operator, datatype, length_bytes),
    ]
}

/// Runs all contenders in turns and takes each one's median.
fn measure(contenders: &mut [Contender]) -> Vec<Figure> {
    for contender in contenders.iter_mut() {
        while turn(contender) < TURN {
            contender.calls *= 2;
        }
    }
    let mut turns = vec![Vec::with_capacity(TURNS); contenders.len()];
    for _ in 0..TURNS {
        for (contender, turns) in contenders.iter_mut().zip(&mut turns) {
            turns.push(turn(contender));
        }
    }
    contenders.iter().zip(turns).map(|(contender, turns)| figure(contender, turns)).collect()
}

fn turn(contender: &mut Contender) -> Duration {
    let start = Instant::now();
    for _ in 0..contender.calls {
        (contender.call)();
    }
    start.elapsed()
}

fn figure(contender: &Contender, mut turns: Vec<Duration>) -> Figure {
    turns.sort_unstable();
    let bytes = contender.traffic_bytes as f64 * f64::from(contender.calls);
    let gigabytes_per_second = bytes / turns[turns.len() / 2].as_secs_f64() / 1e9;
    Figure { name: contender.name.clone(), gigabytes_per_second }
}

/// Where the figures go: a table for people, or one JSON object a line.
struct Report<W> {
    json: bool,
    output: W,
}

impl<W: Write> Report<W> {
    fn heading(&mut self, title: &str) -> io::Result<()> {
        if self.json {
            return Ok(());
        }
        writeln!(self.output, "\n{title} (GB/s read and written)")?;
        writeln!(
            self.output,
            "{:<10} {:>8}  {:<12} {:>8} {:>8} {:>9}",
            "datatype", "KiB", "what", "GB/s", "/ copy", "/ oracle"
        )
    }

    /// One row a figure, with its ratio to the first (the copy) and to the last (the oracle).
    fn rows(&mut self, datatype: &str, length_bytes: usize, figures: &[Figure]) -> io::Result<()> {
        let copy = figures[0].gigabytes_per_second;
        let oracle = figures[figures.len() - 1].gigabytes_per_second;
        for Figure { name, gigabytes_per_second: rate } in figures {
            let (to_copy, to_oracle) = (rate / copy, rate / oracle);
            if self.json {
                writeln!(
                    self.output,
                    "{{\"datatype\":\"{datatype}\",\"length_bytes\":{length_bytes},\
                     \"what\":\"{name}\",\"gigabytes_per_second\":{rate:.3},\
                     \"to_copy\":{to_copy:.3},\"to_oracle\":{to_oracle:.3}}}"
                )?;
            } else {
                writeln!(
                    self.output,
                    "{datatype:<10} {:>8}  {name:<12} {rate:>8.1} {to_copy:>8.2} {to_oracle:>9.2}",
                    length_bytes >> 10
                )?;
            }
        }
        Ok(())
    }
}
