//! One process of a benchmark.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context as _, anyhow, bail};
use rustix::process::{Signal, getppid, set_parent_process_death_signal};
use tributary_client::report::CounterRegistry;
use tributary_client::{
    Bootstrap as _, Communicator, Context, Operation, Request, Settings, Verdict,
};
use tributary_wire::{Datatype, Operator};

use crate::bootstrap::Parent;
use crate::message::FromRank;
use crate::pattern;
use crate::work::{Collective, Step, Work};

/// Barriers whose order of arrivals and departures is checked.
const BARRIERS_CHECKED: u32 = 20;

/// Runs the work of the parent, which is at the other end of standard input, and tells it how that ended.
///
/// # Errors
/// If no [`crate::Benchmark`] has started this process.
pub fn run() -> anyhow::Result<ExitCode> {
    die_with_the_parent()?;
    let (mut parent, work) =
        Parent::meet().context("only tributary bench may start this command")?;
    let told = match measure_all(&mut parent, &work) {
        Ok(()) => FromRank::Finished,
        Err(error) => FromRank::Failed(format!("{error:#}")),
    };
    // Fails if the parent is gone; this process ends in any case.
    let _ = parent.tell(&told);
    Ok(if told == FromRank::Finished { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Asks the kernel to end this process when the parent ends for any reason.
fn die_with_the_parent() -> anyhow::Result<()> {
    set_parent_process_death_signal(Some(Signal::KILL))?;
    // The parent may have ended before the request; this process then has another parent.
    if getppid().is_none_or(rustix::process::Pid::is_init) && std::process::id() != 1 {
        bail!("the parent ended");
    }
    Ok(())
}

fn measure_all(parent: &mut Parent, work: &Work) -> anyhow::Result<()> {
    let settings = Settings::from_env()?;
    let context = Arc::new(Context::open(parent, settings)?);
    let counters = CounterRegistry::default().open("bench", parent.size(), parent.rank() == 0);
    let communicator =
        Communicator::create(&context, parent, &counters, Arc::new(|| Verdict::GoOn))?;
    parent.tell(&FromRank::Ready(paths(&communicator, work)))?;
    for step in &work.steps {
        let mut rank = Rank::new(parent, &communicator, work, *step);
        let what = || format!("{} of {} bytes", work.collective.name(), step.size_bytes);
        let mut times_ns = rank.measure(parent).with_context(what)?;
        if work.overlap {
            let overlap;
            (overlap, times_ns) = rank.measure_overlap().with_context(what)?;
            parent.tell(&FromRank::Overlap(overlap))?;
        }
        parent.tell(&FromRank::Times(times_ns))?;
    }
    Ok(())
}

/// The path that operations take; several if it depends on the size.
fn paths(communicator: &Communicator, work: &Work) -> String {
    let mut names: Vec<&str> = work
        .steps
        .iter()
        .map(|step| communicator.path_kind(&operation(work, step)).name())
        .collect();
    names.sort_unstable();
    names.dedup();
    names.join(",")
}

/// One step's operation, without buffers.
fn operation(work: &Work, step: &Step) -> Operation {
    Operation {
        collective: work.collective.kind().rooted_at(0),
        datatype: if work.operator == Operator::Barrier { Datatype::U8 } else { work.datatype },
        operator: work.operator,
        elements: step.size_bytes / work.datatype.size_bytes() as u64,
        ..Operation::BARRIER
    }
}

/// One rank at one size.
pub(crate) struct Rank<'a> {
    communicator: &'a Communicator,
    work: &'a Work,
    step: Step,
    rank: u32,
    ranks: u32,
    /// Whether the operation leaves a result here.
    has_result: bool,
    source: Vec<u64>,
    target: Vec<u64>,
    operation: Operation,
}

impl<'a> Rank<'a> {
    fn new(parent: &Parent, communicator: &'a Communicator, work: &'a Work, step: Step) -> Self {
        let elements = step.size_bytes as usize / work.datatype.size_bytes();
        let input = pattern::input(work.datatype, work.operator, parent.rank(), elements);
        let source = words(&input);
        let mut target = vec![0; source.len()];
        let has_result = match work.collective {
            Collective::Allreduce | Collective::Bcast => true,
            Collective::Reduce => parent.rank() == 0,
            Collective::Barrier => false,
        };
        let operation = Operation {
            source: source.as_ptr().cast(),
            target: target.as_mut_ptr().cast(),
            ..operation(work, &step)
        };
        let (rank, ranks) = (parent.rank(), parent.size());
        Self { communicator, work, step, rank, ranks, has_result, source, target, operation }
    }

    /// Checks, warms up, times, and checks again.
    fn measure(&mut self, parent: &mut Parent) -> anyhow::Result<Vec<u64>> {
        if self.work.verify && self.work.collective == Collective::Barrier {
            self.check_barrier(parent)?;
        }
        self.poison();
        self.operate()?;
        self.check_result("first")?;
        for _ in 0..self.step.warmup {
            self.operate()?;
        }
        let mut times_ns = Vec::with_capacity(self.step.iterations as usize);
        self.poison();
        for _ in 0..self.step.iterations {
            self.barrier()?;
            let start = Instant::now();
            self.operate()?;
            times_ns.push(start.elapsed().as_nanos() as u64);
        }
        self.check_result("last")?;
        Ok(times_ns)
    }

    fn operate(&self) -> anyhow::Result<()> {
        // SAFETY: `source` and `target` hold `size_bytes` each, do not overlap, live as long as
        // `self`, and nothing else touches them while this call, which blocks, runs.
        unsafe { self.communicator.run(&self.operation) }.map_err(anyhow::Error::from)
    }

    /// Starts the operation.
    pub(crate) fn start(&self) -> anyhow::Result<Request> {
        // SAFETY: as in `operate`; every caller waits for the request before anything else touches
        // the buffers, which live as long as `self`.
        unsafe { self.communicator.start(self.operation) }.map_err(anyhow::Error::from)
    }

    pub(crate) fn iterations(&self) -> u64 {
        self.step.iterations
    }

    pub(crate) fn barrier(&self) -> anyhow::Result<()> {
        if self.work.collective == Collective::Barrier {
            return Ok(());
        }
        // SAFETY: a barrier has no buffers.
        unsafe { self.communicator.run(&Operation::BARRIER) }.map_err(anyhow::Error::from)
    }

    /// Fills the target with bytes that are no result; a broadcast's root keeps its data.
    fn poison(&mut self) {
        if self.work.collective == Collective::Bcast && self.rank == 0 {
            self.target.copy_from_slice(&self.source);
        } else {
            self.target.fill(0xA5A5_A5A5_A5A5_A5A5);
        }
        self.operation.target = self.target.as_mut_ptr().cast();
    }

    fn check_result(&self, which: &str) -> anyhow::Result<()> {
        if !self.work.verify || !self.has_result {
            return Ok(());
        }
        let Work { datatype, operator, .. } = *self.work;
        let elements = self.operation.elements as usize;
        let expected = pattern::expected_result(datatype, operator, self.ranks, elements);
        let bytes: Vec<u8> = self.target.iter().flat_map(|word| word.to_ne_bytes()).collect();
        match pattern::first_difference(datatype, &bytes[..expected.len()], &expected) {
            None => Ok(()),
            Some(element) => Err(anyhow!(
                "wrong result of the {which} operation: element {element} of {elements} differs"
            )),
        }
    }

    /// Checks that no rank leaves a barrier before all have entered; each round, another rank is late.
    fn check_barrier(&self, parent: &mut Parent) -> anyhow::Result<()> {
        for round in 0..BARRIERS_CHECKED {
            if round % self.ranks == parent.rank() {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            let came_ns = clock_ns();
            self.operate()?;
            let left_ns = clock_ns();
            let mine = [came_ns.to_le_bytes(), left_ns.to_le_bytes()].concat();
            let mut all = vec![0; 16 * self.ranks as usize];
            parent.allgather(&mine, &mut all)?;
            let at = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
            let last_came = all.chunks_exact(16).map(|times| at(&times[..8])).max();
            let first_left = all.chunks_exact(16).map(|times| at(&times[8..])).min();
            if last_came > first_left {
                bail!("in round {round}, a rank left the barrier before the last one had entered");
            }
        }
        Ok(())
    }
}

/// The clock that all processes of this machine share.
fn clock_ns() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// `bytes` in memory aligned for every datatype, the last word filled up with zeros.
fn words(bytes: &[u8]) -> Vec<u64> {
    bytes
        .chunks(8)
        .map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_ne_bytes(word)
        })
        .collect()
}
