//! Speed of exact sums, compared with plain loops in one run.
//!
//! `cargo bench -p tributary-exact`. Contenders take turns; the median of each counts. `plain` is the loop that adds one value
//! after the other, as C compiles it with -O3; `16 lanes` is the fastest loop, whose result depends on the number of lanes.

use std::cell::RefCell;
use std::hint::black_box;
use std::io::{self, Write};
use std::time::Instant;

use rand_pcg::Pcg64Mcg;
use rand_pcg::rand_core::Rng;
use tributary_exact::{
    Accumulator, Element, Format, Isa, Layout, Products, Span, Window, exact_dot, exact_sum,
    sum_vectors,
};

const VALUES: usize = 10_000_000;
const TURNS: usize = 15;
const MERGES: usize = 1000;
const LANES: usize = 16;
/// Values of a vector that is written as lanes: so few that all stays in the second cache.
const LAID_OUT: usize = 10_000;
/// Vectors that are summed in one memory.
const RANKS: usize = 8;

type Contender<'a> = (&'a str, Box<dyn Fn() + 'a>);

fn main() -> io::Result<()> {
    let mut random = Pcg64Mcg::new(1);
    let mut uniform = || (random.next_u64() >> 11) as f64 / (1_u64 << 53) as f64 - 0.5;
    let left: Vec<f64> = (0..VALUES).map(|_| uniform()).collect();
    let right: Vec<f64> = (0..VALUES).map(|_| uniform()).collect();
    let narrow = |values: &[f64]| values.iter().map(|&value| value as f32).collect::<Vec<_>>();
    let (left32, right32) = (narrow(&left), narrow(&right));
    sums("sum of 10^7 doubles", &left)?;
    sums("sum of 10^7 floats", &left32)?;
    let wide: Vec<f64> =
        (0..VALUES).map(|_| f64::from_bits(random.next_u64() & !(1 << 62))).collect();
    sums("sum of 10^7 doubles of 1,024 exponents", &wide)?;
    dots(&left, &right, &left32, &right32)?;
    merges(&mut random)?;
    vectors_as_lanes(&mut random)?;
    let of_ranks = |values: &[f64]| -> Vec<Vec<f64>> {
        values.chunks(LAID_OUT).take(RANKS).map(<[f64]>::to_vec).collect()
    };
    sums_of_vectors("8 vectors of 10^4 doubles", &of_ranks(&left))?;
    sums_of_vectors("8 vectors of 10^4 doubles of 1,024 exponents", &of_ranks(&wide))?;
    let singles: Vec<_> = of_ranks(&left).iter().map(|values| narrow(values)).collect();
    sums_of_vectors("8 vectors of 10^4 floats", &singles)?;
    sums_of_vectors(
        "8 vectors of a double",
        &left[..RANKS].iter().map(|&value| vec![value]).collect::<Vec<_>>(),
    )?;
    sums_of_vectors(
        "8 vectors of two floats",
        &left32[..2 * RANKS].chunks(2).map(<[f32]>::to_vec).collect::<Vec<_>>(),
    )
}

/// Vectors of random values as lanes.
fn vectors_as_lanes(random: &mut Pcg64Mcg) -> io::Result<()> {
    // Exponents between the smallest and the largest value, so that 1, 2 and 3 lanes are taken.
    for (lanes, exponents32, exponents64) in [(1, 20, 2), (2, 60, 40), (3, 130, 90)] {
        let mut values = |exponents: u64| -> Vec<f64> {
            let first = 1023 - exponents / 2;
            let draw = || {
                let draw = random.next_u64();
                // A sign and a fraction of random bits, and a random exponent.
                f64::from_bits(draw & !(0x7ff << 52) | (first + (draw >> 52) % exponents) << 52)
            };
            std::iter::repeat_with(draw).take(LAID_OUT).collect()
        };
        let singles: Vec<f32> = values(exponents32).into_iter().map(|value| value as f32).collect();
        lanes_of(&format!("10^4 floats as {lanes} lanes"), lanes, &singles)?;
        lanes_of(&format!("10^4 doubles as {lanes} lanes"), lanes, &values(exponents64))?;
        let mut doubles = values(exponents64);
        doubles[0] = -0.0;
        lanes_of(&format!("10^4 doubles as {lanes} lanes, and counts"), lanes + 1, &doubles)?;
    }
    Ok(())
}

/// Sums of vectors in one memory, of which each has `RANKS` values.
fn sums_of_vectors<T: Plain + Element + Format<Rounded = T>>(
    title: &str,
    vectors: &[Vec<T>],
) -> io::Result<()> {
    let sums = RefCell::new(vec![T::default(); vectors[0].len()]);
    // Short vectors many times, as a clock takes as long as one of their sums.
    let repeats = LAID_OUT / vectors[0].len();
    let contenders: [Contender<'_>; 2] = [
        (
            "one after the other",
            Box::new(|| {
                let mut sums = sums.borrow_mut();
                for _ in 0..repeats {
                    sums.copy_from_slice(&black_box(vectors)[0]);
                    for vector in &vectors[1..] {
                        sums.iter_mut().zip(vector).for_each(|(sum, &value)| *sum += value);
                    }
                    black_box(&mut *sums);
                }
            }),
        ),
        (
            "sum_vectors",
            Box::new(|| {
                let mut sums = sums.borrow_mut();
                for _ in 0..repeats {
                    let vectors = black_box(vectors);
                    sum_vectors(&mut sums, RANKS as u32, |at, range| &vectors[at as usize][range]);
                    black_box(&mut *sums);
                }
            }),
        ),
    ];
    report(title, &contenders, repeats * vectors[0].len())
}

trait Plain: Copy + core::ops::Add<Output = Self> + core::ops::AddAssign + Default {}
impl Plain for f32 {}
impl Plain for f64 {}

fn plain_sum<T: Plain>(values: &[T]) -> T {
    values.iter().fold(T::default(), |sum, &value| sum + value)
}

fn sum_of_lanes<T: Plain>(values: &[T]) -> T {
    let mut sums = [T::default(); LANES];
    for values in values.chunks_exact(LANES) {
        for (sum, &value) in sums.iter_mut().zip(values) {
            *sum += value;
        }
    }
    plain_sum(&sums)
}

fn sums<T: Plain + tributary_exact::ArrayElement>(title: &str, values: &[T]) -> io::Result<()>
where
    Products<T>: tributary_exact::Format<Rounded = T>,
{
    let one_by_one = |values: &[T]| {
        let mut sum = Accumulator::default();
        values.iter().for_each(|&value| sum.add(value));
        sum.round()
    };
    let with = |isa| {
        move || {
            let mut sum = Accumulator::<T>::default();
            sum.add_array(isa, black_box(values));
            black_box(sum.round());
        }
    };
    let contenders: [Contender<'_>; 6] = [
        (
            "plain",
            Box::new(move || {
                black_box(plain_sum(black_box(values)));
            }),
        ),
        (
            "16 lanes",
            Box::new(move || {
                black_box(sum_of_lanes(black_box(values)));
            }),
        ),
        (
            "exact_sum",
            Box::new(move || {
                black_box(exact_sum(black_box(values)));
            }),
        ),
        ("exact, portable", Box::new(with(Isa::Portable))),
        ("exact, avx2", Box::new(with(Isa::Avx2))),
        (
            "exact, one by one",
            Box::new(move || {
                black_box(one_by_one(black_box(values)));
            }),
        ),
    ];
    report(title, &contenders, VALUES)
}

/// A vector as lanes, for 64 ranks.
fn lanes_of<T: Plain + tributary_exact::Element>(
    title: &str,
    lanes: usize,
    values: &[T],
) -> io::Result<()> {
    let span = Span::of(values);
    let layout = Layout::new::<T>(span, 64);
    assert_eq!(layout.lanes_per_element(), lanes, "{span:?}");
    let mut written = vec![0; lanes * values.len()];
    layout.write(values, &mut written);
    let written = RefCell::new(written);
    let sums = RefCell::new(vec![T::default(); values.len()]);
    let portable = Isa::Portable;
    let contenders: [Contender<'_>; 6] = [
        ("copy", Box::new(|| sums.borrow_mut().copy_from_slice(black_box(values)))),
        (
            "span",
            Box::new(|| {
                black_box(Span::of(black_box(values)));
            }),
        ),
        (
            "write",
            Box::new(|| layout.write(black_box(values), black_box(&mut written.borrow_mut()))),
        ),
        (
            "read",
            Box::new(|| {
                layout.read(black_box(&written.borrow()), black_box(&mut sums.borrow_mut()))
            }),
        ),
        (
            "write, portable",
            Box::new(|| {
                layout.write_with(portable, black_box(values), black_box(&mut written.borrow_mut()))
            }),
        ),
        (
            "read, portable",
            Box::new(|| {
                layout.read_with(
                    portable,
                    black_box(&written.borrow()),
                    black_box(&mut sums.borrow_mut()),
                )
            }),
        ),
    ];
    report(title, &contenders, values.len())
}

fn dots(left: &[f64], right: &[f64], left32: &[f32], right32: &[f32]) -> io::Result<()> {
    let plain = || left.iter().zip(right).fold(0.0, |sum, (&left, &right)| sum + left * right);
    let contenders: [Contender<'_>; 2] = [
        (
            "plain",
            Box::new(move || {
                black_box(plain());
            }),
        ),
        (
            "exact_dot",
            Box::new(move || {
                let _ = black_box(exact_dot(left, right));
            }),
        ),
    ];
    report("dot of 10^7 doubles", &contenders, VALUES)?;
    let (left, right) = (left32, right32);
    let plain = || left.iter().zip(right).fold(0.0, |sum, (&left, &right)| sum + left * right);
    let contenders: [Contender<'_>; 2] = [
        (
            "plain",
            Box::new(move || {
                black_box(plain());
            }),
        ),
        (
            "exact_dot",
            Box::new(move || {
                let _ = black_box(exact_dot(left, right));
            }),
        ),
    ];
    report("dot of 10^7 floats", &contenders, VALUES)
}

/// Merges of windows of four words, each with another, in the first cache.
fn merges(random: &mut Pcg64Mcg) -> io::Result<()> {
    let mut window = || {
        let mut window = Window::from(1.5 + (random.next_u64() >> 40) as f64);
        window.merge(&Window::from(2_f64.powi(-130) * 3.0)).expect("two values fit");
        window
    };
    let (target, source) = (window(), window());
    assert_eq!((target.words().len(), source.words().len()), (4, 4));
    let target = RefCell::new(target);
    let merge = || {
        let mut target = target.borrow_mut();
        for _ in 0..MERGES {
            target.merge(black_box(&source)).expect("the sum is small");
        }
    };
    let add = || {
        let mut sum = 0.0;
        for _ in 0..MERGES {
            sum += black_box(1.5);
        }
        black_box(sum);
    };
    let contenders: [Contender<'_>; 2] =
        [("addition of doubles", Box::new(add)), ("merge", Box::new(merge))];
    report("merge of windows of 4 words, one after the other", &contenders, MERGES)
}

fn report(title: &str, contenders: &[Contender<'_>], count: usize) -> io::Result<()> {
    let mut output = io::stdout().lock();
    writeln!(output, "{title}")?;
    let mut times = vec![Vec::new(); contenders.len()];
    for _ in 0..TURNS {
        for ((_, run), times) in contenders.iter().zip(&mut times) {
            let start = Instant::now();
            run();
            times.push(start.elapsed().as_secs_f64() * 1e9 / count as f64);
        }
    }
    let medians: Vec<f64> = times.iter_mut().map(|times| median(times)).collect();
    for ((name, _), time) in contenders.iter().zip(&medians) {
        writeln!(output, "  {name:20} {time:7.2} ns each, ratio {:5.2}", time / medians[0])?;
    }
    Ok(())
}

fn median(times: &mut [f64]) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
