//! The form of a program that the simulator runs.

use tributary_algorithms::CollectiveKind;

use crate::Distribution;

/// A program: its ranks, where they are, and what each does.
#[derive(Clone, Debug, PartialEq)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// The host of each rank: a number below the number of hosts.
    pub hosts: Vec<u32>,
    /// The ranks that take part in the collectives that calls name.
    pub communicators: Vec<Communicator>,
    /// What ranks do; several may do the same.
    pub scripts: Vec<Script>,
    /// The script of each rank; empty if all follow the first.
    pub script_of: Vec<u32>,
    /// How much later than the first a rank begins.
    pub skew: Distribution,
    /// By how much ranks differ: the standard deviation, over ranks, of a factor on a rank's computing.
    pub imbalance: f64,
}

/// A communicator, or several of the same kind that have no rank in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Communicator {
    /// What it is called.
    pub name: String,
    /// The ranks of each of its parts, in the order of their ranks there.
    pub parts: Vec<Vec<u32>>,
}

/// What a rank does from begin to end.
#[derive(Clone, Debug, PartialEq)]
pub struct Script {
    /// How often it goes through the phases.
    pub iterations: u32,
    /// The phases of an iteration.
    pub phases: Vec<Phase>,
}

/// Computing, then a collective.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Phase {
    /// How long the rank computes before the call.
    pub compute: Distribution,
    /// The call.
    pub call: Call,
    /// How often in a row.
    pub repeat: u32,
    /// Only in each iteration whose number, from 1, is a multiple of this.
    pub every: u32,
}

/// A call of a collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    /// Over which of the program's communicators.
    pub communicator: usize,
    /// Which.
    pub kind: CollectiveKind,
    /// The root in the communicator, for those that have one.
    pub root: u32,
    /// A rank's contribution.
    pub bytes: u64,
}

impl Workload {
    /// How many ranks there are.
    #[must_use]
    pub fn ranks(&self) -> u32 {
        self.hosts.len() as u32
    }

    /// How many hosts they are on.
    #[must_use]
    pub fn host_count(&self) -> u32 {
        self.hosts.iter().max().map_or(0, |last| last + 1)
    }

    /// What a rank does, step by step.
    #[must_use]
    pub fn steps(&self, rank: u32) -> Steps<'_> {
        let script = self.script_of.get(rank as usize).copied().unwrap_or(0);
        Steps { script: &self.scripts[script as usize], iteration: 1, phase: 0, repeated: 0 }
    }

    /// The calls of all ranks together.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let of_script: Vec<u64> = self.scripts.iter().map(Script::calls).collect();
        (0..self.hosts.len())
            .map(|rank| of_script[self.script_of.get(rank).copied().unwrap_or(0) as usize])
            .fold(0, u64::saturating_add)
    }
}

impl Script {
    /// How many calls it makes.
    #[must_use]
    pub fn calls(&self) -> u64 {
        let of_phase = |phase: &Phase| {
            let times = self.iterations / phase.every.max(1);
            u64::from(times) * u64::from(phase.repeat)
        };
        self.phases.iter().map(of_phase).fold(0, u64::saturating_add)
    }
}

/// The steps of one rank; see [`Workload::steps`].
#[derive(Clone, Debug)]
pub struct Steps<'a> {
    script: &'a Script,
    iteration: u32,
    phase: usize,
    repeated: u32,
}

impl Iterator for Steps<'_> {
    type Item = (Distribution, Call);

    fn next(&mut self) -> Option<Self::Item> {
        while self.iteration <= self.script.iterations {
            let Some(phase) = self.script.phases.get(self.phase) else {
                if self.script.phases.is_empty() {
                    return None;
                }
                self.iteration += 1;
                self.phase = 0;
                continue;
            };
            if self.iteration.is_multiple_of(phase.every.max(1)) && self.repeated < phase.repeat {
                self.repeated += 1;
                return Some((phase.compute, phase.call));
            }
            self.phase += 1;
            self.repeated = 0;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn phase(bytes: u64, repeat: u32, every: u32) -> Phase {
        let call = Call { communicator: 0, kind: CollectiveKind::Allreduce, root: 0, bytes };
        Phase { compute: Distribution::NONE, call, repeat, every }
    }

    #[test]
    fn steps_come_in_order_and_as_often_as_counted() {
        let script =
            Script { iterations: 4, phases: vec![phase(1, 2, 1), phase(2, 1, 2), phase(3, 0, 1)] };
        let workload = Workload {
            name: "test".into(),
            hosts: vec![0, 0, 1],
            communicators: Vec::new(),
            scripts: vec![script, Script { iterations: 9, phases: Vec::new() }],
            script_of: vec![0, 0, 1],
            skew: Distribution::NONE,
            imbalance: 0.0,
        };
        let bytes: Vec<u64> = workload.steps(0).map(|(_, call)| call.bytes).collect();
        assert_eq!(bytes, [1, 1, 1, 1, 2, 1, 1, 1, 1, 2]);
        assert_eq!(workload.steps(2).count(), 0);
        assert_eq!(workload.calls(), 20);
        assert_eq!((workload.ranks(), workload.host_count()), (3, 2));
    }
}
