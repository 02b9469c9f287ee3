//! When hosts and their processes work, and how long.

use super::cores::Runner;
use super::host::Process;
use super::ids::ProcessId;
use super::payload::Data;
use super::state::World;
use crate::engine::Picos;
use crate::fabric::Vertex;

impl<D: Data> World<D> {
    /// Adds a process.
    ///
    /// # Panics
    /// If the fabric has no such host.
    pub fn add_process(&mut self, host: Vertex) -> ProcessId {
        assert!(host.0 < self.network.wiring().hosts(), "{host:?} is no host");
        let id = ProcessId(self.processes.len() as u32);
        let detour_at = self.next_detour(Picos::ZERO);
        self.processes.push(Process { host, free_at: Picos::ZERO, detour_at });
        id
    }

    /// Switches noise off for the rest of the simulation.
    pub fn disable_noise(&mut self) {
        self.costs = self.costs.clone().quiet();
        for process in &mut self.processes {
            process.detour_at = Picos(u64::MAX);
        }
    }

    /// `at`, plus the random delay of a process that starts a collective.
    pub fn add_skew(&mut self, at: Picos) -> Picos {
        let skew_ps = self.costs.noise.skew_ps;
        if skew_ps == 0.0 {
            return at;
        }
        at + Picos((2.0 * skew_ps * self.random.unit()) as u64)
    }

    /// Occupies a core for `process` for `cost`, from `earliest` on. Returns when it is done.
    pub(super) fn work(&mut self, process: ProcessId, earliest: Picos, cost: Picos) -> Picos {
        let index = process.index();
        let earliest = earliest.max(self.processes[index].free_at);
        let turn = self.cores.turn(Runner::Process(process), earliest);
        let start = turn.start;
        let jitter = self.costs.noise.jitter;
        let cost = if jitter > 0.0 {
            Picos((cost.0 as f64 * (1.0 + jitter * self.random.bell()).max(0.0)) as u64)
        } else {
            cost
        };
        let mut end = start + cost;
        while self.processes[index].detour_at < end {
            end = self.take_detour(index, start, end);
        }
        self.cores.end(turn, end);
        self.processes[index].free_at = end;
        end
    }

    /// Adds a detour that begins before the core is done: all of it, or its remainder if it began while
    /// the core was idle.
    fn take_detour(&mut self, index: usize, start: Picos, end: Picos) -> Picos {
        let began_at = self.processes[index].detour_at;
        let length = Picos((self.costs.noise.detour_ps * self.random.exponential()) as u64);
        self.processes[index].detour_at = self.next_detour(began_at + length);
        end + (began_at + length).since(began_at.max(start))
    }

    fn next_detour(&mut self, from: Picos) -> Picos {
        match self.costs.noise.between_detours_ps {
            Some(mean_ps) => from + Picos((mean_ps * self.random.exponential()) as u64 + 1),
            None => Picos(u64::MAX),
        }
    }
}
