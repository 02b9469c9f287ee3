//! Goal: exact sums have the bits of the real sum, rounded once, whatever path carries them and whatever came before.
//! Method: ranks are threads of this process; sequences of operations on hostile floats come from a seed, and every rank adds
//! all contributions up in an accumulator of full width.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod ranks;

use std::sync::Arc;

use half::{bf16, f16};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use ranks::{ThreadRanks, on_all_ranks};
use tributary_client::report::CounterRegistry;
use tributary_client::{
    Blocks, Bootstrap, Collective, Communicator, Context, Operation, Request, Settings, Verdict,
};
use tributary_exact::{Accumulator, Element, Format};
use tributary_wire::{Datatype, Operator};

/// Which exponents the values of a vector have.
#[derive(Clone, Copy, Debug)]
enum Exponents {
    /// A few, near one of their own.
    Near,
    /// All, and subnormal numbers.
    All,
    /// All bit patterns: infinities and NaNs too.
    Any,
    /// None: zeros of both signs.
    Zeros,
}

/// One step of a script: the same at all ranks.
#[derive(Clone, Copy, Debug)]
struct Step {
    collective: Collective,
    datatype: Datatype,
    elements: usize,
    exponents: Exponents,
    has_cuts: bool,
    in_place: bool,
    blocking: bool,
    /// Not where values of its type usually lie.
    is_unaligned: bool,
}

const DATATYPES: [Datatype; 6] = [
    Datatype::F16,
    Datatype::Bf16,
    Datatype::F32,
    Datatype::F64,
    Datatype::F32Complex,
    Datatype::F64Complex,
];

fn script(seed: u64, ranks: u32, steps: usize) -> Vec<Step> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    (0..steps)
        .map(|step| {
            let root = random.random_range(0..ranks);
            let collective = match random.random_range(0..9) {
                0..4 => Collective::Allreduce,
                4 | 5 => Collective::Reduce { root },
                6 => Collective::ReduceScatter,
                7 => Collective::Scan,
                _ => Collective::Exscan,
            };
            // One of several steps.
            let long = if step % 20 == 7 { 70_001 } else { 500 };
            let elements = [0, 1, 2, 7, 60, 130, long][random.random_range(0..7)];
            let has_cuts: bool = random.random();
            let is_even = collective == Collective::ReduceScatter && !has_cuts;
            let exponents = match random.random_range(0..12) {
                0 => Exponents::All,
                1 => Exponents::Any,
                2 => Exponents::Zeros,
                _ => Exponents::Near,
            };
            Step {
                collective,
                datatype: DATATYPES[random.random_range(0..DATATYPES.len())],
                elements: if is_even { elements - elements % ranks as usize } else { elements },
                exponents,
                has_cuts,
                in_place: random.random(),
                blocking: random.random_range(0..3) > 0,
                is_unaligned: random.random_range(0..8) == 0,
            }
        })
        .collect()
}

impl Step {
    fn parts(&self) -> usize {
        if self.datatype.is_complex() { 2 } else { 1 }
    }

    /// Where the blocks of a reduce-scatter begin, and the last one ends, in elements.
    fn cuts(&self, ranks: u32) -> Vec<u64> {
        let (ranks, elements) = (u64::from(ranks), self.elements as u64);
        let cut = |at: u64| match self.has_cuts && at > 0 && at < ranks {
            true => elements - elements / (at + 1),
            false => at * elements / ranks,
        };
        let mut cuts: Vec<u64> = (0..=ranks).map(cut).collect();
        cuts.sort_unstable();
        cuts
    }

    /// The contribution of a rank.
    fn values<E: Element>(&self, step: usize, rank: u32) -> Vec<E> {
        let seed = (step as u64) << 32 | u64::from(rank);
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let fraction_bits = E::PRECISION - 1;
        let field_max = (1_u64 << E::EXPONENT_BITS) - 1;
        // The same at all ranks.
        let middle = Pcg64Mcg::seed_from_u64(step as u64).random_range(4..field_max - 4);
        let value = |_| {
            let fraction = random.random::<u64>() & ((1 << fraction_bits) - 1);
            let field = match self.exponents {
                Exponents::Near => random.random_range(middle - 3..=middle + 3),
                Exponents::All => random.random_range(0..field_max),
                Exponents::Any if random.random_range(0..4) == 0 => field_max,
                Exponents::Any => random.random_range(0..=field_max),
                Exponents::Zeros => 0,
            };
            let is_zero = matches!(self.exponents, Exponents::Zeros);
            let is_infinite = field == field_max && random.random::<bool>();
            let fraction = if is_zero || is_infinite { 0 } else { fraction };
            let sign = u64::from(random.random::<u8>() % 4 != 0);
            E::from_bits_u64(
                sign << (fraction_bits + E::EXPONENT_BITS) | field << fraction_bits | fraction,
            )
        };
        (0..self.elements * self.parts()).map(value).collect()
    }

    /// What a rank gets.
    fn expected<E: Element + Format<Rounded = E>>(
        &self,
        step: usize,
        rank: u32,
        ranks: u32,
    ) -> Option<Vec<E>> {
        let sum_of = |ranks: u32| {
            let mut sums = vec![Accumulator::<E>::default(); self.elements * self.parts()];
            for rank in 0..ranks {
                for (sum, value) in sums.iter_mut().zip(self.values::<E>(step, rank)) {
                    sum.add(value);
                }
            }
            sums.iter().map(Accumulator::round).collect::<Vec<E>>()
        };
        match self.collective {
            Collective::Reduce { root } if root != rank => None,
            Collective::Exscan if rank == 0 => None,
            Collective::Exscan => Some(sum_of(rank)),
            Collective::Scan => Some(sum_of(rank + 1)),
            Collective::ReduceScatter => {
                let cuts = self.cuts(ranks);
                let cut = |at: u32| cuts[at as usize] as usize * self.parts();
                Some(sum_of(ranks)[cut(rank)..cut(rank + 1)].to_vec())
            }
            _ => Some(sum_of(ranks)),
        }
    }
}

/// The memory of a vector, which may begin anywhere.
struct Vector {
    bytes: Vec<u64>,
    first: usize,
}

impl Vector {
    fn new<E: Element>(values: &[E], is_unaligned: bool) -> Self {
        let len_bytes = size_of_val(values);
        let mut vector =
            Self { bytes: vec![u64::MAX; len_bytes / 8 + 2], first: usize::from(is_unaligned) };
        // SAFETY: there is room for the values behind the first byte, and they are plain bytes.
        unsafe {
            std::ptr::copy_nonoverlapping(values.as_ptr().cast(), vector.pointer(), len_bytes);
        }
        vector
    }

    fn pointer(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr().cast::<u8>().wrapping_add(self.first)
    }

    fn bits<E: Element>(&mut self, count: usize) -> Vec<u64> {
        let first = self.pointer().cast::<E>();
        // SAFETY: the vector has as many values.
        (0..count).map(|at| unsafe { first.add(at).read_unaligned() }.to_bits_u64()).collect()
    }
}

/// An operation under way, its buffers, and what must be in them.
struct Pending {
    request: Option<Request>,
    source: Vector,
    target: Vector,
    _cuts: Vec<u64>,
    step: usize,
}

fn start<E: Element>(
    communicator: &Communicator,
    step: usize,
    what: &Step,
    ranks: [u32; 2],
) -> Pending {
    let [rank, ranks] = ranks;
    let mine = what.values::<E>(step, rank);
    let mut source = Vector::new(&mine, what.is_unaligned);
    let mut target = Vector::new(&mine, what.is_unaligned);
    let cuts = what.cuts(ranks);
    let operation = Operation {
        collective: what.collective,
        datatype: what.datatype,
        operator: Operator::Sum,
        elements: what.elements as u64,
        combiner: None,
        blocks: if what.has_cuts { Blocks::At(cuts.as_ptr()) } else { Blocks::Even },
        source: if what.in_place { target.pointer() } else { source.pointer() },
        target: target.pointer(),
    };
    let mut request = None;
    // SAFETY: both vectors have `elements` elements, are moved without moving their contents into what this returns, and
    // stay there until the request is done.
    unsafe {
        if what.blocking {
            communicator.run(&operation).unwrap();
        } else {
            request = Some(communicator.start(operation).unwrap());
        }
    }
    Pending { request, source, target, _cuts: cuts, step }
}

fn check<E: Element + Format<Rounded = E>>(
    mut pending: Pending,
    what: &Step,
    [rank, ranks]: [u32; 2],
) {
    if let Some(request) = &pending.request {
        request.wait().unwrap();
    }
    let step = pending.step;
    let bits = |values: Vec<E>| values.into_iter().map(E::to_bits_u64).collect::<Vec<_>>();
    let original = bits(what.values::<E>(step, rank));
    let kept = pending.source.bits::<E>(original.len());
    assert!(kept == original, "{what:?} changed its source");
    let Some(expected) = what.expected::<E>(step, rank, ranks) else { return };
    let found = pending.target.bits::<E>(expected.len());
    for (at, (found, expected)) in found.into_iter().zip(bits(expected)).enumerate() {
        assert_eq!(found, expected, "step {step}, {what:?} at rank {rank} of {ranks}, value {at}");
    }
}

/// Two steps are under way at a time, so that nonblocking ones queue up.
fn play(communicator: &Communicator, script: &[Step], ranks: [u32; 2]) {
    let mut before: Option<(Pending, Step)> = None;
    for (step, what) in script.iter().enumerate() {
        let pending = match what.datatype {
            Datatype::F16 => start::<f16>(communicator, step, what, ranks),
            Datatype::Bf16 => start::<bf16>(communicator, step, what, ranks),
            Datatype::F32 | Datatype::F32Complex => start::<f32>(communicator, step, what, ranks),
            _ => start::<f64>(communicator, step, what, ranks),
        };
        if let Some((pending, what)) = before.replace((pending, *what)) {
            check_any(pending, &what, ranks);
        }
    }
    if let Some((pending, what)) = before {
        check_any(pending, &what, ranks);
    }
}

fn check_any(pending: Pending, what: &Step, ranks: [u32; 2]) {
    match what.datatype {
        Datatype::F16 => check::<f16>(pending, what, ranks),
        Datatype::Bf16 => check::<bf16>(pending, what, ranks),
        Datatype::F32 | Datatype::F32Complex => check::<f32>(pending, what, ranks),
        _ => check::<f64>(pending, what, ranks),
    }
}

fn communicator(ranks: &mut ThreadRanks, set: &'static [(&str, &str)]) -> Communicator {
    let of_name = |name: &str| set.iter().find(|(set, _)| *set == name);
    let settings = Settings::from_environment(|name| match name {
        // Rank 0's word counts.
        "TRIBUTARY_SUMS" => Some(if ranks.rank() == 0 { "exact" } else { "ordered" }.to_owned()),
        name => of_name(name).map(|(_, value)| (*value).to_owned()),
    });
    let context = Arc::new(Context::open(ranks, settings.unwrap()).unwrap());
    let counters = CounterRegistry::default().open("world", ranks.size(), ranks.rank() == 0);
    Communicator::create(&context, ranks, &counters, Arc::new(|| Verdict::GoOn)).unwrap()
}

#[test]
fn sums_within_a_host_are_the_rounded_real_sums() {
    for (seed, size) in [(1, 1), (2, 2), (3, 3), (4, 5)] {
        on_all_ranks(size, move |mut ranks| {
            let communicator = communicator(&mut ranks, &[]);
            play(&communicator, &script(seed, size, 120), [ranks.rank(), size]);
        });
    }
}

#[test]
fn sums_between_hosts_are_the_rounded_real_sums() {
    type World = (u64, u32, &'static [(&'static str, &'static str)]);
    const DIRECT: (&str, &str) = ("TRIBUTARY_BETWEEN_HOSTS", "direct");
    const ADDRESS: (&str, &str) = ("TRIBUTARY_HOST_ADDRESS", "127.0.0.1");
    const WORLDS: [World; 4] = [
        (11, 2, &[DIRECT, ADDRESS, ("TRIBUTARY_HOSTS", "2")]),
        (
            12,
            5,
            &[
                DIRECT,
                ADDRESS,
                ("TRIBUTARY_HOSTS", "5"),
                ("TRIBUTARY_DIRECT_ALGORITHM", "rabenseifner"),
            ],
        ),
        (
            13,
            6,
            &[DIRECT, ADDRESS, ("TRIBUTARY_HOSTS", "3"), ("TRIBUTARY_DIRECT_ALGORITHM", "ring")],
        ),
        (
            14,
            6,
            &[
                DIRECT,
                ADDRESS,
                ("TRIBUTARY_HOSTS", "2"),
                ("TRIBUTARY_LEADERS", "3"),
                ("TRIBUTARY_SUB_PARTITIONS", "4"),
            ],
        ),
    ];
    for (seed, size, set) in WORLDS {
        on_all_ranks(size, move |mut ranks| {
            let communicator = communicator(&mut ranks, set);
            play(&communicator, &script(seed, size, 80), [ranks.rank(), size]);
        });
    }
}
