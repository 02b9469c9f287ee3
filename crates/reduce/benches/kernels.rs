//! Speed of the kernels, compared with a plain memory copy and with the oracle.
//!
//! `cargo bench -p tributary-reduce [-- --json]`. Every figure is the memory traffic of the
//! program, bytes read plus bytes written: a copy of n bytes moves 2n, `target = target OP
//! source` and `target = left OP right` move 3n. The contenders run in turns of a few
//! milliseconds, so that a slow period of the machine affects all alike; the median turn counts.
//!
//! `results.txt` beside this file holds results, and names the machine.
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

/// Vector lengths of the first table: two vectors fit in L2, about fill L2, exceed it by far.
const LENGTHS_BYTES: [usize; 4] = [64 << 10, 256 << 10, 1 << 20, 16 << 20];

/// Vector length of the table of datatypes.
const DATATYPES_LENGTH_BYTES: usize = 256 << 10;

/// A cache line, on which vectors start.
const LINE_BYTES: usize = 64;

/// How far behind a line the vectors of the misaligned contender start.
const MISALIGNED_BYTES: usize = 4;

fn main() -> io::Result<()> {
    let json = std::env::args().any(|argument| argument == "--json");
    let mut report = Report { json, table: "", output: io::stdout().lock() };
    report.heading("float sum beside a memory copy")?;
    for length_bytes in LENGTHS_BYTES {
        let mut vectors = Vectors::new(Datatype::F32, length_bytes);
        let contenders = float_sum_contenders(&vectors);
        let figures = measure(contenders, &mut vectors);
        report.rows(&vectors, &figures)?;
    }
    report.heading("every datatype: sum, or minloc of pairs")?;
    for datatype in Datatype::ALL {
        let mut vectors = Vectors::new(datatype, DATATYPES_LENGTH_BYTES);
        let contenders = datatype_contenders(&mut vectors);
        let figures = measure(contenders, &mut vectors);
        report.rows(&vectors, &figures)?;
    }
    Ok(())
}

/// The vectors that all contenders of a table row work on. They share the memory, because the position
/// of pages in a cache changes results by several percent.
struct Vectors {
    datatype: Datatype,
    length_bytes: usize,
    target: Vector,
    left: Vector,
    right: Vector,
    accumulator: Vector,
}

impl Vectors {
    fn new(datatype: Datatype, length_bytes: usize) -> Self {
        let ones = || Vector::of_ones(datatype, length_bytes);
        let elements = length_bytes / datatype.size_bytes();
        let accumulator = Vector::zeroed(accumulator_bytes(datatype, elements));
        Self { datatype, length_bytes, target: ones(), left: ones(), right: ones(), accumulator }
    }
}

/// A vector that starts on a cache line, with room to start a little behind it.
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
            Datatype::F32 | Datatype::F32Index | Datatype::F32Complex | Datatype::F32FloatIndex => {
                &1f32.to_le_bytes()
            }
            Datatype::F64 | Datatype::F64Index | Datatype::F64Complex | Datatype::F64FloatIndex => {
                &1f64.to_le_bytes()
            }
            _ => &[1],
        };
        let mut vector = Self::zeroed(len_bytes);
        for element in vector.bytes_mut().chunks_exact_mut(datatype.size_bytes()) {
            element[..one.len()].copy_from_slice(one);
        }
        vector
    }

    fn zeroed(len_bytes: usize) -> Self {
        // Ones, then zeros: pages that were never written would all map to the zero page.
        let mut memory = vec![1; len_bytes + LINE_BYTES + MISALIGNED_BYTES];
        memory.fill(0);
        let start = memory.as_ptr().align_offset(LINE_BYTES);
        Self { memory, start, len_bytes }
    }

    fn bytes(&self) -> &[u8] {
        black_box(&self.memory[self.start..][..self.len_bytes])
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        black_box(&mut self.memory[self.start..][..self.len_bytes])
    }

    fn misaligned(&self) -> &[u8] {
        black_box(&self.memory[self.start + MISALIGNED_BYTES..][..self.len_bytes])
    }

    fn misaligned_mut(&mut self) -> &mut [u8] {
        black_box(&mut self.memory[self.start + MISALIGNED_BYTES..][..self.len_bytes])
    }
}

/// One thing to measure.
struct Contender {
    name: &'static str,
    /// Bytes read and written by one call.
    traffic_bytes: usize,
    call: Box<dyn Fn(&mut Vectors)>,
    /// Calls in a turn.
    calls: u32,
}

/// The result of a contender.
struct Figure {
    name: &'static str,
    /// Traffic of the median turn, in 10^9 bytes a second.
    gigabytes_per_second: f64,
}

fn contender(
    name: &'static str,
    traffic_bytes: usize,
    call: impl Fn(&mut Vectors) + 'static,
) -> Contender {
    Contender { name, traffic_bytes, call: Box::new(call), calls: 1 }
}

fn copy_contender(vectors: &Vectors) -> Contender {
    contender("copy", 2 * vectors.length_bytes, |Vectors { target, left, .. }| {
        target.bytes_mut().copy_from_slice(left.bytes());
    })
}

fn oracle_contender(operator: Operator, vectors: &Vectors) -> Contender {
    contender(
        "oracle",
        3 * vectors.length_bytes,
        move |Vectors { datatype, target, left, .. }| {
            oracle::fold(
                black_box(operator),
                black_box(*datatype),
                target.bytes_mut(),
                left.bytes(),
            );
        },
    )
}

fn fold_contender(kernel: Kernel, vectors: &Vectors) -> Contender {
    let traffic_bytes = 3 * vectors.length_bytes;
    contender(kernel.isa().name(), traffic_bytes, move |Vectors { target, left, .. }| {
        kernel.fold(target.bytes_mut(), left.bytes());
    })
}

/// As [`fold_contender`], with vectors whose every full-width load and store straddles two lines.
fn misaligned_contender(kernel: Kernel, vectors: &Vectors) -> Contender {
    contender("misaligned", 3 * vectors.length_bytes, move |Vectors { target, left, .. }| {
        kernel.fold(target.misaligned_mut(), left.misaligned());
    })
}

fn combine_contender(kernel: Kernel, vectors: &Vectors) -> Contender {
    let traffic_bytes = 3 * vectors.length_bytes;
    contender("combine_into", traffic_bytes, move |Vectors { target, left, right, .. }| {
        kernel.combine_into(target.bytes_mut(), left.bytes(), right.bytes());
    })
}

/// One later contribution: reads it and the accumulator, writes the accumulator.
fn accumulate_contender(accumulation: Accumulation, vectors: &mut Vectors) -> Contender {
    accumulation.begin(vectors.accumulator.bytes_mut(), vectors.left.bytes());
    let traffic_bytes = vectors.length_bytes + 2 * vectors.accumulator.len_bytes;
    contender("accumulate", traffic_bytes, move |Vectors { accumulator, left, .. }| {
        accumulation.fold(accumulator.bytes_mut(), left.bytes());
    })
}

/// The obvious loop without an operator to look up, one float after another. Volatile reads keep it
/// scalar; without them the compiler would vectorise it into the same code as `portable`.
fn scalar_contender(vectors: &Vectors) -> Contender {
    contender("scalar loop", 3 * vectors.length_bytes, |Vectors { target, left, .. }| {
        let elements = target.len_bytes / size_of::<f32>();
        let target: *mut f32 = target.bytes_mut().as_mut_ptr().cast();
        let source: *const f32 = left.bytes().as_ptr().cast();
        for element in 0..elements {
            // SAFETY: both vectors hold `elements` floats and start on a cache line.
            unsafe {
                let (target, source) = (target.add(element), source.add(element));
                target.write(target.read_volatile() + source.read_volatile());
            }
        }
    })
}

fn float_sum_contenders(vectors: &Vectors) -> Vec<Contender> {
    let mut contenders = vec![copy_contender(vectors)];
    contenders.extend(kernels(Operator::Sum, vectors));
    let best = Kernel::new(Operator::Sum, Datatype::F32).expect("floats have a sum");
    contenders.push(misaligned_contender(best, vectors));
    contenders.push(combine_contender(best, vectors));
    contenders.push(scalar_contender(vectors));
    contenders.push(oracle_contender(Operator::Sum, vectors));
    contenders
}

fn datatype_contenders(vectors: &mut Vectors) -> Vec<Contender> {
    let operator = if vectors.datatype.is_pair() { Operator::MinLoc } else { Operator::Sum };
    let accumulation =
        Accumulation::new(operator, vectors.datatype).expect("the operator suits the type");
    let mut contenders = vec![copy_contender(vectors)];
    contenders.extend(kernels(operator, vectors));
    contenders.push(accumulate_contender(accumulation, vectors));
    contenders.push(oracle_contender(operator, vectors));
    contenders
}

/// The kernels of all instruction sets this machine has.
fn kernels(operator: Operator, vectors: &Vectors) -> impl Iterator<Item = Contender> {
    Isa::ALL
        .into_iter()
        .filter_map(move |isa| Kernel::with_isa(isa, operator, vectors.datatype))
        .map(|kernel| fold_contender(kernel, vectors))
}

/// Runs all contenders in turns and takes each one's median.
fn measure(mut contenders: Vec<Contender>, vectors: &mut Vectors) -> Vec<Figure> {
    for contender in &mut contenders {
        while turn(contender, vectors) < TURN {
            contender.calls *= 2;
        }
    }
    let mut turns = vec![Vec::with_capacity(TURNS); contenders.len()];
    for _ in 0..TURNS {
        for (contender, turns) in contenders.iter().zip(&mut turns) {
            turns.push(turn(contender, vectors));
        }
    }
    contenders.iter().zip(turns).map(|(contender, turns)| figure(contender, turns)).collect()
}

fn turn(contender: &Contender, vectors: &mut Vectors) -> Duration {
    // One untimed call, so that the caches are in the state that this contender leaves.
    (contender.call)(vectors);
    let start = Instant::now();
    for _ in 0..contender.calls {
        (contender.call)(vectors);
    }
    start.elapsed()
}

fn figure(contender: &Contender, mut turns: Vec<Duration>) -> Figure {
    turns.sort_unstable();
    let bytes = contender.traffic_bytes as f64 * f64::from(contender.calls);
    let gigabytes_per_second = bytes / turns[turns.len() / 2].as_secs_f64() / 1e9;
    Figure { name: contender.name, gigabytes_per_second }
}

/// Where the figures go: a table for people, or one JSON object a line.
struct Report<W> {
    json: bool,
    /// What the rows that follow are part of.
    table: &'static str,
    output: W,
}

impl<W: Write> Report<W> {
    fn heading(&mut self, table: &'static str) -> io::Result<()> {
        self.table = table;
        if self.json {
            return Ok(());
        }
        writeln!(self.output, "\n{table} (GB/s read and written)")?;
        writeln!(
            self.output,
            "{:<10} {:>8}  {:<12} {:>8} {:>8} {:>9}",
            "datatype", "KiB", "what", "GB/s", "/ copy", "/ oracle"
        )
    }

    /// One row a figure, with its ratio to the first (the copy) and to the last (the oracle).
    fn rows(&mut self, vectors: &Vectors, figures: &[Figure]) -> io::Result<()> {
        let (datatype, length_bytes) = (vectors.datatype.name(), vectors.length_bytes);
        let copy = figures[0].gigabytes_per_second;
        let oracle = figures[figures.len() - 1].gigabytes_per_second;
        for Figure { name, gigabytes_per_second: rate } in figures {
            let (to_copy, to_oracle) = (rate / copy, rate / oracle);
            if self.json {
                writeln!(
                    self.output,
                    "{{\"table\":\"{}\",\"datatype\":\"{datatype}\",\"length_bytes\":{length_bytes},\
                     \"what\":\"{name}\",\"gigabytes_per_second\":{rate:.3},\
                     \"to_copy\":{to_copy:.3},\"to_oracle\":{to_oracle:.3}}}",
                    self.table
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
