//! When each program runs: on a core of its own, or with all others on the cores of one machine, as in a lab.

use super::cost::MachineCosts;
use super::ids::{AggregatorId, ProcessId};
use crate::engine::Picos;

/// What a core runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Runner {
    Process(ProcessId),
    Node(AggregatorId),
}

/// The cores that all share, if they share any. A program that asks first gets the first core that can serve it, for
/// one action.
#[derive(Clone, Debug)]
pub(super) struct Cores {
    /// None if everybody has a core of its own.
    shared: Vec<Core>,
    switch: Picos,
}

/// The right to run from a time on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    runner: Runner,
    /// Which of the shared cores.
    core: Option<usize>,
    pub(super) start: Picos,
}

#[derive(Clone, Copy, Debug, Default)]
struct Core {
    free_at: Picos,
    last: Option<Runner>,
}

impl Cores {
    #[must_use]
    pub(super) fn new(machine: Option<&MachineCosts>) -> Self {
        Self {
            shared: vec![Core::default(); machine.map_or(0, |machine| machine.cores as usize)],
            switch: machine.map_or(Picos::ZERO, |machine| machine.switch),
        }
    }

    /// The first turn of `runner` from `earliest` on. A shared core that ran another before must switch first.
    #[must_use]
    #[inline]
    pub(super) fn turn(&self, runner: Runner, earliest: Picos) -> Turn {
        let start = |core: &Core| {
            let was_here = core.last == Some(runner);
            core.free_at.max(earliest) + if was_here { Picos::ZERO } else { self.switch }
        };
        let starts = self.shared.iter().map(start).enumerate();
        match starts.min_by_key(|(_, start)| *start) {
            Some((core, start)) => Turn { runner, core: Some(core), start },
            None => Turn { runner, core: None, start: earliest },
        }
    }

    /// A turn is used until `end`.
    #[inline]
    pub(super) fn end(&mut self, turn: Turn, end: Picos) {
        if let Some(core) = turn.core {
            self.shared[core] = Core { free_at: end, last: Some(turn.runner) };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NODE: Runner = Runner::Node(AggregatorId(0));

    fn process(number: u32) -> Runner {
        Runner::Process(ProcessId(number))
    }

    fn two_cores() -> Cores {
        Cores::new(Some(&MachineCosts { cores: 2, switch: Picos(10) }))
    }

    /// Runs for 100, and returns when that began.
    fn run(cores: &mut Cores, runner: Runner, earliest: u64) -> u64 {
        let turn = cores.turn(runner, Picos(earliest));
        cores.end(turn, turn.start + Picos(100));
        turn.start.0
    }

    #[test]
    fn a_program_waits_while_all_cores_are_taken_and_pays_for_the_switch() {
        let mut cores = two_cores();
        assert_eq!(run(&mut cores, process(0), 0), 10);
        assert_eq!(run(&mut cores, process(1), 50), 60);
        assert_eq!(run(&mut cores, NODE, 70), 120);
        assert_eq!(run(&mut cores, process(0), 70), 170, "process 1 ends first");
    }

    #[test]
    fn a_program_that_goes_on_where_it_ran_pays_for_no_switch() {
        let mut cores = two_cores();
        assert_eq!(run(&mut cores, process(0), 0), 10);
        assert_eq!(run(&mut cores, process(0), 110), 110);
        assert_eq!(run(&mut cores, process(0), 500), 500, "an idle core is as it was left");
        assert_eq!(run(&mut cores, NODE, 500), 510);
    }

    #[test]
    fn on_cores_of_their_own_nobody_waits() {
        let mut cores = Cores::new(None);
        for runner in [process(0), process(1), NODE] {
            assert_eq!(run(&mut cores, runner, 7), 7);
        }
    }
}
