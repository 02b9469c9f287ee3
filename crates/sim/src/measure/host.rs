//! Host-based collectives, as a benchmark measures them.

use tributary_algorithms::{Algorithm, Collective};

use super::Samples;
use super::tree::PAUSE;
use crate::fabric::Vertex;
use crate::preset::Preset;
use crate::system::{System, SystemError};
use crate::world::{HostCollective, Nothing, RunError, Team};

/// A host-based benchmark: one process on each host.
pub struct HostRun {
    system: System<Nothing>,
    team: Team,
    algorithm: Algorithm,
}

impl HostRun {
    /// Sets a team up. Without a `seed` there is no noise.
    ///
    /// # Errors
    /// [`SystemError`].
    pub fn set_up(
        preset: &Preset,
        hosts: &[Vertex],
        algorithm: Algorithm,
        seed: Option<u64>,
    ) -> Result<Self, SystemError> {
        let mut system = System::new(preset, seed.unwrap_or(0), None)?;
        if seed.is_none() {
            system.world.silence();
        }
        let processes: Vec<_> = hosts.iter().map(|&host| system.world.add_process(host)).collect();
        let team = system.world.add_team(&processes);
        Ok(Self { system, team, algorithm })
    }

    /// The tuned algorithm of a preset: recursive k-ing of its radix.
    #[must_use]
    pub fn tuned(preset: &Preset) -> Algorithm {
        Algorithm::RecursiveKing { radix: preset.software.radix.count().max(2) }
    }

    /// Runs `operations` allreduces of `bytes` bytes of 32-bit elements.
    ///
    /// # Errors
    /// [`RunError`].
    pub fn allreduce(&mut self, bytes: usize, operations: u32) -> Result<Samples, RunError> {
        let mut samples = Samples::default();
        let operation = HostCollective {
            algorithm: self.algorithm,
            collective: Collective::Allreduce,
            elements: bytes.div_ceil(4) as u64,
            element_bytes: 4,
        };
        for _ in 0..operations {
            let world = &mut self.system.world;
            let begin = world.now() + PAUSE;
            let starts: Vec<_> = (0..self.team.ranks()).map(|_| world.skewed(begin)).collect();
            world.enter(&self.team, &operation, &starts)?;
            world.run()?;
            let finished = world.take_ranks_finished();
            let of = self.team.ranks() as usize;
            if finished.len() != of {
                return Err(RunError::Stuck { waiting: of - finished.len(), of });
            }
            let times: Vec<f64> =
                finished.map(|done| done.ended_at.since(done.began_at).as_us()).collect();
            samples.add(&times);
        }
        Ok(samples)
    }

    /// The system, for its counters.
    #[must_use]
    pub fn system(&self) -> &System<Nothing> {
        &self.system
    }
}
