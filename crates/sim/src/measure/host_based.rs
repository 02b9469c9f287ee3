//! Benchmarks of host-based collectives.

use std::sync::Arc;

use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Algorithm, Collective};

use super::Samples;
use super::operation::expect_all;
use super::tree::PAUSE;
use crate::fabric::Vertex;
use crate::preset::Preset;
use crate::system::{System, SystemError};
use crate::world::{HostCollective, NoPayload, RankId, RunError, Team};

/// A host-based benchmark: one process on each host.
pub struct HostRun {
    system: System<NoPayload>,
    team: Team,
    exchange: Exchange,
}

/// How the processes meet.
#[derive(Clone, Copy, Debug)]
enum Exchange {
    /// By messages over links.
    Messages(Algorithm),
    /// By datagrams among the members of replicated groups.
    Groups,
}

impl HostRun {
    /// Sets a team up, without noise if there is no `seed`.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn set_up(
        preset: &Preset,
        hosts: &[Vertex],
        algorithm: Algorithm,
        seed: Option<u64>,
    ) -> Result<Self, SystemError> {
        let (system, team) = set_up_team(preset, hosts, seed)?;
        Ok(Self { system, team, exchange: Exchange::Messages(algorithm) })
    }

    /// Sets a team up whose processes are members of replicated groups, in the levels of a plan whose groups are equal, and
    /// `multicast` or send copies. They allreduce vectors of one datagram.
    ///
    /// # Errors
    /// [`SystemError`].
    ///
    /// # Panics
    /// If the plan is not of as many hosts, or its groups are not equal.
    pub fn set_up_groups(
        preset: &Preset,
        hosts: &[Vertex],
        plan: &Arc<Plan>,
        multicast: bool,
        seed: Option<u64>,
    ) -> Result<Self, SystemError> {
        let (mut system, team) = set_up_team(preset, hosts, seed)?;
        system.world.add_groups(&team, plan, multicast);
        Ok(Self { system, team, exchange: Exchange::Groups })
    }

    /// Runs `operations` allreduces of `bytes` bytes of 32-bit elements; every process's time
    /// counts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn allreduce(&mut self, bytes: usize, operations: u32) -> Result<Samples, RunError> {
        let mut samples = Samples::default();
        for _ in 0..operations {
            let times = self.one(Collective::Allreduce, bytes)?;
            samples.add(&times.iter().map(|(_, us)| *us).collect::<Vec<_>>());
        }
        Ok(samples)
    }

    /// Runs `operations` reduces to the first process; its time counts.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn reduce(&mut self, bytes: usize, operations: u32) -> Result<Samples, RunError> {
        let mut samples = Samples::default();
        let root = self.team.rank(0);
        for _ in 0..operations {
            let times = self.one(Collective::Reduce { root: 0 }, bytes)?;
            let of_root = times.iter().filter(|(rank, _)| *rank == root);
            samples.add(&of_root.map(|(_, us)| *us).collect::<Vec<_>>());
        }
        Ok(samples)
    }

    /// One operation: every rank's time, in microseconds.
    fn one(
        &mut self,
        collective: Collective,
        bytes: usize,
    ) -> Result<Vec<(RankId, f64)>, RunError> {
        let world = &mut self.system.world;
        let begin = world.now() + PAUSE;
        let starts: Vec<_> = (0..self.team.ranks()).map(|_| world.add_skew(begin)).collect();
        match self.exchange {
            Exchange::Messages(algorithm) => {
                let elements = bytes.div_ceil(4) as u64;
                let operation =
                    HostCollective { algorithm, collective, elements, element_bytes: 4 };
                world.enter(&self.team, &operation, &starts)?;
            }
            Exchange::Groups => {
                assert_eq!(collective, Collective::Allreduce, "groups carry no other");
                world.enter_groups(&self.team, bytes as u32, &starts);
            }
        }
        world.run()?;
        let finished = world.take_ranks_finished();
        let times: Vec<_> =
            finished.map(|done| (done.rank, done.ended_at.since(done.began_at).as_us())).collect();
        expect_all(times.len(), self.team.ranks() as usize)?;
        Ok(times)
    }

    /// The system, for its counters.
    #[must_use]
    pub fn system(&self) -> &System<NoPayload> {
        &self.system
    }
}

/// A process on each of these hosts.
fn set_up_team(
    preset: &Preset,
    hosts: &[Vertex],
    seed: Option<u64>,
) -> Result<(System<NoPayload>, Team), SystemError> {
    let mut system = System::new(preset, seed.unwrap_or(0), None)?;
    if seed.is_none() {
        system.world.disable_noise();
    }
    let processes: Vec<_> = hosts.iter().map(|&host| system.world.add_process(host)).collect();
    let team = system.world.add_team(&processes);
    Ok((system, team))
}
