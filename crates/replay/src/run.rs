//! Runs a program: every rank computes and calls by its own clock.
//!
//! A collective begins on a host when the last of the communicator's ranks there has come; what happens
//! inside a host is computed from their times, as in the simulator's benchmarks. Between hosts each host's
//! first rank takes part, in the tree or by the hosts' algorithm. Nobody waits for other hosts but in the
//! collective itself.

mod between;
mod host;
mod inside;
mod outcome;
mod parts;
mod tree;

use tributary_algorithms::{CollectiveKind, Unsupported};
use tributary_sim::engine::{Picos, Random};
use tributary_sim::input::Refused;
use tributary_sim::preset::Preset;
use tributary_sim::system::{System, SystemError, SystemPlan};
use tributary_sim::world::{NoPayload, RunError};
use tributary_workload::{Call, Steps, Workload};

pub use between::Between;
pub use outcome::{Class, ClassTimes, Outcome};
use parts::{Leader, Parts};

/// Most calls of all ranks together.
const CALLS_MAX: u64 = 100_000_000;

/// Longest contribution of a rank: 256 MiB.
pub const BYTES_MAX: u64 = 1 << 28;

/// What all ranks of an allgather may contribute together: 2 GiB.
pub const GATHERED_MAX: u64 = 1 << 31;

/// Longest virtual time: 11 days, in picoseconds.
const TIME_MAX: Picos = Picos(1_000_000_000_000_000_000);

/// Why a program was not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReplayError {
    /// The system can't run this program.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A system could not be made.
    #[error(transparent)]
    System(#[from] SystemError),
    /// The simulation failed.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl From<Unsupported> for ReplayError {
    fn from(fault: Unsupported) -> Self {
        Self::Run(fault.into())
    }
}

/// Runs a program on a system. The same seed gives the same computing in every design.
///
/// # Errors
/// [`ReplayError`].
pub fn run(
    preset: &Preset,
    plan: &SystemPlan,
    workload: &Workload,
    between: &Between,
    seed: u64,
) -> Result<Outcome, ReplayError> {
    check(preset, plan, workload)?;
    let mut system = System::from_plan(preset, plan.clone(), seed, None);
    let parts = Parts::new(preset, workload, between, &mut system)?;
    let mut replay = Replay {
        system,
        preset,
        between,
        ranks: ranks(workload, seed),
        outcome: Outcome::of(parts.trees(), parts.refused_count()),
        parts,
        moving: Vec::new(),
    };
    replay.finish()?;
    Ok(replay.outcome)
}

/// Refuses what does not fit the system.
fn check(preset: &Preset, plan: &SystemPlan, workload: &Workload) -> Result<(), Refused> {
    let (needed, has) = (workload.host_count(), plan.compute_hosts().len() as u32);
    if needed == 0 || needed > has {
        let allowed =
            format!("1 to {has}, the hosts of `{}` without an aggregation node", preset.name);
        return Err(Refused::new("hosts", needed, allowed));
    }
    let cores = preset.memory.sockets.count() * preset.memory.cores.count();
    let mut on_host = vec![0_u32; needed as usize];
    workload.hosts.iter().for_each(|&host| on_host[host as usize] += 1);
    if let Some(&most) = on_host.iter().max().filter(|&&most| most > cores) {
        let allowed = format!("1 to {cores}, the cores of a host of `{}`", preset.name);
        return Err(Refused::new("processes", most, allowed));
    }
    let calls = workload.calls();
    if calls > CALLS_MAX {
        let allowed = format!("up to {CALLS_MAX} calls of all ranks together");
        return Err(Refused::new(
            "iterations",
            format!("so many that ranks make {calls} calls"),
            allowed,
        ));
    }
    let mut phases = workload.scripts.iter().flat_map(|script| &script.phases);
    phases.try_for_each(|phase| check_length(workload, phase.call))
}

fn check_length(workload: &Workload, call: Call) -> Result<(), Refused> {
    let parts = workload.communicators[call.communicator].parts.iter();
    let ranks = parts.map(Vec::len).max().unwrap_or(0) as u64;
    let max = match call.kind {
        CollectiveKind::Allgather => (GATHERED_MAX / ranks.max(1)).min(BYTES_MAX),
        _ => BYTES_MAX,
    };
    if call.bytes <= max {
        return Ok(());
    }
    let allowed = format!("up to {max} in {} over {ranks} ranks", call.kind.name());
    Err(Refused::new("bytes", call.bytes, allowed))
}

/// A rank: what it does next, and its own random numbers.
struct Rank<'a> {
    steps: Steps<'a>,
    random: Random,
    /// How slow it computes.
    factor: f64,
}

fn ranks(workload: &Workload, seed: u64) -> Vec<(Rank<'_>, Picos)> {
    (0..workload.ranks())
        .map(|number| {
            let own_seed = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).wrapping_add(number.into());
            let mut random = Random::new(own_seed);
            let factor = (1.0 + workload.imbalance * random.bell()).max(0.0);
            let begins_us = workload.skew.sample(&mut || random.unit());
            (Rank { steps: workload.steps(number), random, factor }, span(begins_us))
        })
        .collect()
}

fn span(us: f64) -> Picos {
    Picos::from_ns(us * 1e3).min(TIME_MAX)
}

/// A program in progress.
struct Replay<'a> {
    system: System<NoPayload>,
    preset: &'a Preset,
    between: &'a Between,
    /// Each with the time of its last step.
    ranks: Vec<(Rank<'a>, Picos)>,
    parts: Parts,
    outcome: Outcome,
    /// Ranks that go on.
    moving: Vec<u32>,
}

impl Replay<'_> {
    fn finish(&mut self) -> Result<(), ReplayError> {
        self.moving = (0..self.ranks.len() as u32).rev().collect();
        self.move_on()?;
        while self.system.world.step()? {
            if self.system.world.has_finished() {
                self.take_finished()?;
            }
        }
        match self.parts.waiting() {
            0 => Ok(()),
            waiting => Err(RunError::Stuck { waiting, of: self.ranks.len() }.into()),
        }
    }

    fn take_finished(&mut self) -> Result<(), ReplayError> {
        let world = &mut self.system.world;
        let members =
            world.take_finished().map(|done| (Leader::Member(done.member), done.ended_at));
        let mut done: Vec<_> = members.collect();
        done.extend(
            world.take_ranks_finished().map(|done| (Leader::Rank(done.rank), done.ended_at)),
        );
        for (leader, ended_at) in done {
            let seat = self.parts.place_of(leader);
            self.leave(seat, ended_at);
        }
        self.move_on()
    }

    /// Ranks compute and come to their next call.
    fn move_on(&mut self) -> Result<(), ReplayError> {
        while let Some(number) = self.moving.pop() {
            let (rank, at) = &mut self.ranks[number as usize];
            let Some((compute, call)) = rank.steps.next() else {
                self.outcome.ends(*at);
                continue;
            };
            let random = &mut rank.random;
            let computing = span(rank.factor * compute.sample(&mut || random.unit()));
            self.outcome.computes(computing);
            let comes_at = *at + computing;
            if comes_at > TIME_MAX {
                let value =
                    format!("so long that a rank computes for {} s", comes_at.as_us() / 1e6);
                return Err(Refused::new("compute", value, "up to 11 days in all").into());
            }
            if let Some(place) = self.parts.come(number, call, comes_at) {
                self.begin(place, call)?;
            }
        }
        Ok(())
    }

    /// All ranks of a host are there.
    fn begin(&mut self, place: parts::Place, call: Call) -> Result<(), ReplayError> {
        let ready_at = self.parts.begin(place).max(self.system.world.now());
        if !self.parts.has_several_hosts(place) {
            self.leave(place, ready_at);
            return Ok(());
        }
        let is_wanted = match self.between {
            Between::Hosts => false,
            Between::Tree { only, .. } => {
                only.as_ref().is_none_or(|only| only.contains(&Class::of(call)))
            }
        };
        match self.parts.member(place) {
            Some(member) if is_wanted && tree::has(call.kind) => {
                let spec = tree::operation(&self.system.world, &self.parts, place, call);
                self.system.world.start(member, ready_at, spec);
            }
            _ => {
                let operation = host::operation(self.preset, &self.parts, place, call);
                let (team, number) = self.parts.team(place);
                self.system.world.enter_one(&team, number, &operation, ready_at)?;
            }
        }
        Ok(())
    }

    /// A host's leader has its result.
    fn leave(&mut self, place: parts::Place, ended_at: Picos) {
        for (rank, done_at) in self.parts.leave(place, ended_at, &mut self.outcome) {
            self.ranks[rank as usize].1 = done_at;
            self.moving.push(rank);
        }
    }
}

/// The collectives of all programs, in the order of tables.
#[must_use]
pub fn is_in_tree(kind: CollectiveKind) -> bool {
    tree::has(kind)
}
