//! Benchmarks of collectives in the tree.

use tributary_protocol::StreamTerms;
use tributary_wire::EndpointId;
use tributary_wire::frame::Target;

use super::Samples;
use super::operation::{stream_towards, sum_towards};
use crate::engine::Picos;
use crate::fabric::Vertex;
use crate::preset::Preset;
use crate::system::{System, SystemError};
use crate::world::{MemberId, NoPayload, RunError, SetupError, Terms};

/// Pause between two operations, in which all traffic ends, as after a barrier.
pub(super) const PAUSE: Picos = Picos(1_000_000);

/// A benchmark of the tree: communicators that all run the same collective at once, each with a
/// process of its own on every host.
#[derive(Clone, Debug)]
pub struct TreeBenchmark {
    /// The hosts. Each runs one process of every communicator.
    pub hosts: Vec<Vertex>,
    /// Communicators at once.
    pub communicators: u32,
    /// Outstanding operations that each communicator requests.
    pub osos: u16,
    /// Outstanding operations that the job may hold in all; none for the limits of the aggregators alone.
    pub osos_per_job: Option<u32>,
    /// Whether results also go out by multicast.
    pub multicast: bool,
    /// Seed of everything random; none for a run without noise.
    pub seed: Option<u64>,
}

/// The processes that get results.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goal {
    Everyone,
    /// The first process of each communicator.
    First,
}

/// The benchmark, set up for any length.
pub struct TreeRun {
    system: System<NoPayload>,
    groups: Vec<Vec<MemberId>>,
    payload_max_bytes: usize,
    /// Whether vectors go as streams.
    is_stream: bool,
}

/// `count` of a fabric's `hosts` hosts, as far apart as they can be.
#[must_use]
pub fn spread_hosts(count: u32, hosts: u32) -> Vec<Vertex> {
    (0..count)
        .map(|index| Vertex((u64::from(index) * u64::from(hosts) / u64::from(count)) as u32))
        .collect()
}

impl TreeBenchmark {
    /// One communicator over the first `hosts` hosts, with one outstanding operation, without multicast and without
    /// noise.
    #[must_use]
    pub fn of_first(hosts: u32) -> Self {
        Self {
            hosts: (0..hosts).map(Vertex).collect(),
            communicators: 1,
            osos: 1,
            osos_per_job: None,
            multicast: false,
            seed: None,
        }
    }

    /// Sets everything up.
    ///
    /// # Errors
    /// [`SystemError`]; see [`is_refusal`] for the refusal of a grant.
    pub fn set_up(&self, preset: &Preset) -> Result<TreeRun, SystemError> {
        self.prepare(preset, None)?.form(self.communicators)
    }

    /// The same for vectors that go as streams, with up to `window` chunks of the preset's longest segment in
    /// flight.
    ///
    /// # Errors
    /// As [`TreeBenchmark::set_up`].
    pub fn set_up_streams(&self, preset: &Preset, window: u16) -> Result<TreeRun, SystemError> {
        self.prepare(preset, Some(window))?.form(self.communicators)
    }

    /// The same in a job whose world communicator has a group as well, as in a library that sets up a
    /// group for each communicator: one more grant.
    ///
    /// # Errors
    /// As [`TreeBenchmark::set_up`].
    pub fn set_up_beside_world(&self, preset: &Preset) -> Result<TreeRun, SystemError> {
        let mut run = self.prepare(preset, None)?.form(self.communicators + 1)?;
        run.groups.remove(0);
        Ok(run)
    }

    fn prepare(&self, preset: &Preset, window: Option<u16>) -> Result<Prepared<'_>, SystemError> {
        let Some(nodes) = &preset.aggregation else {
            return Err(SystemError::NoAggregation(preset.name.clone()));
        };
        let payload_max_bytes = nodes.payload_max.bytes();
        let stream =
            window.map(|window| StreamTerms { chunk_bytes: payload_max_bytes as u32, window });
        let seed = self.seed.unwrap_or(0);
        let mut system = match stream {
            Some(terms) => System::with_streams(preset, seed, self.osos_per_job, terms)?,
            None => System::new(preset, seed, self.osos_per_job)?,
        };
        if self.seed.is_none() {
            system.world.disable_noise();
        }
        Ok(Prepared { benchmark: self, system, payload_max_bytes, stream })
    }
}

/// A system without groups.
struct Prepared<'a> {
    benchmark: &'a TreeBenchmark,
    system: System<NoPayload>,
    payload_max_bytes: usize,
    stream: Option<StreamTerms>,
}

impl Prepared<'_> {
    fn form(self, groups: u32) -> Result<TreeRun, SystemError> {
        let Self { benchmark, mut system, payload_max_bytes, stream } = self;
        let terms = Terms {
            osos: benchmark.osos,
            payload_max_bytes: payload_max_bytes as u32,
            multicast: benchmark.multicast,
            stream,
        };
        let form_one = |_| {
            let add = |&host| (system.world.add_process(host), host);
            let processes: Vec<_> = benchmark.hosts.iter().map(add).collect();
            system.form(&processes, terms)
        };
        let groups = (0..groups).map(form_one).collect::<Result<_, _>>()?;
        let is_stream = stream.is_some();
        let mut run = TreeRun { system, groups, payload_max_bytes, is_stream };
        if benchmark.multicast && run.system.world.has_listeners() {
            // With the first result members learn that multicast arrives, and say so.
            run.allreduce(size_of::<u32>(), 1).map_err(SetupError::from)?;
        }
        Ok(run)
    }
}

/// Whether set-up failed because the manager refused a grant.
#[must_use]
pub fn is_refusal(error: &SystemError) -> bool {
    matches!(error, SystemError::Setup(SetupError::Refused(_)))
}

impl TreeRun {
    /// Runs `operations` allreduces of `bytes` bytes of 32-bit integers; every process's time
    /// counts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn allreduce(&mut self, bytes: usize, operations: u32) -> Result<Samples, RunError> {
        self.repeat(bytes, operations, Goal::Everyone)
    }

    /// Runs `operations` reduces to the first process of each communicator; its time counts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn reduce(&mut self, bytes: usize, operations: u32) -> Result<Samples, RunError> {
        self.repeat(bytes, operations, Goal::First)
    }

    fn repeat(&mut self, bytes: usize, operations: u32, goal: Goal) -> Result<Samples, RunError> {
        let mut samples = Samples::default();
        let mut times = vec![Vec::new(); self.groups.len()];
        for _ in 0..operations {
            self.one(bytes, goal, &mut times)?;
            for of_group in &mut times {
                samples.add(of_group);
                of_group.clear();
            }
        }
        Ok(samples)
    }

    /// The system, for its counters.
    #[must_use]
    pub fn system(&self) -> &System<NoPayload> {
        &self.system
    }

    /// Longest segment.
    #[must_use]
    pub fn payload_max_bytes(&self) -> usize {
        self.payload_max_bytes
    }

    /// Runs one operation. Adds the times that count to those of each communicator.
    fn one(&mut self, bytes: usize, goal: Goal, times: &mut [Vec<f64>]) -> Result<(), RunError> {
        let world = &mut self.system.world;
        let begin = world.now() + PAUSE;
        let starts: Vec<_> =
            self.groups.iter().flatten().map(|&member| (member, world.add_skew(begin))).collect();
        let firsts: Vec<MemberId> = self.groups.iter().map(|group| group[0]).collect();
        let is_first = |member| firsts.binary_search(&member).is_ok();
        let whose = |member| match goal {
            Goal::Everyone => (Target::All, true),
            Goal::First => (Target::Member(EndpointId(0)), is_first(member)),
        };
        let finished = if self.is_stream {
            stream_towards(world, starts, bytes, whose)?
        } else {
            sum_towards(world, starts, bytes, whose)?
        };
        for done in finished {
            if goal == Goal::First && !is_first(done.member) {
                continue;
            }
            let group = firsts.partition_point(|&first| first <= done.member) - 1;
            times[group].push(done.ended_at.since(done.began_at).as_us());
        }
        Ok(())
    }
}
