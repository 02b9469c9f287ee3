//! Threads that take turns: one runs at a time, and hands on at its steps in an order that is chosen before.
//!
//! All orders with a bounded number of interruptions are played (Musuvathi and Qadeer, "Iterative context bounding
//! for systematic testing of multithreaded programs", PLDI 2007): whatever goes wrong usually needs few of them.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;

use tributary_kernel_path::user_space::{Step, follow};

/// What one of the threads does.
pub(crate) type Part<'a, T> = Box<dyn FnOnce() -> T + Send + 'a>;

/// The thread that went on at a step.
struct Choice {
    chosen: usize,
    /// The threads that could have.
    able: Vec<usize>,
    /// The thread that had the turn; none if it could not have kept it.
    keeper: Option<usize>,
}

struct State {
    turn: usize,
    finished: Vec<bool>,
    /// What is chosen at the first steps. After them the thread that has the turn keeps it.
    plan: Vec<usize>,
    choices: Vec<Choice>,
}

struct Turns {
    state: Mutex<State>,
    changed: Condvar,
}

impl State {
    /// Chooses who goes on; `keeper` if it may and nothing else is planned.
    fn choose(&mut self, keeper: Option<usize>, without: Option<usize>) {
        let able: Vec<_> = (0..self.finished.len())
            .filter(|part| !self.finished[*part] && Some(*part) != without)
            .collect();
        let Some(first) = able.first() else {
            assert!(without.is_none(), "a thread waits for what nobody does");
            return;
        };
        let planned = self.plan.get(self.choices.len()).copied();
        self.turn = planned.or(keeper).unwrap_or(*first);
        assert!(able.contains(&self.turn), "the same plan leads to the same choices");
        self.choices.push(Choice { chosen: self.turn, able, keeper });
    }
}

impl Turns {
    fn step(&self, part: usize, step: Step) {
        let mut state = self.lock();
        match step {
            Step::Access => state.choose(Some(part), None),
            Step::Wait => state.choose(None, Some(part)),
        }
        self.wait_for_turn(part, state);
    }

    fn finish(&self, part: usize) {
        let mut state = self.lock();
        state.finished[part] = true;
        state.choose(None, None);
        self.changed.notify_all();
    }

    fn wait_for_turn(&self, part: usize, state: MutexGuard<'_, State>) {
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |state| state.turn != part).expect("nobody panicked"));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nobody panicked")
    }
}

/// Runs the parts by a plan. Returns what they return, and what was chosen.
fn run<T: Send>(parts: Vec<Part<'_, T>>, plan: &[usize]) -> (Vec<T>, Vec<Choice>) {
    let mut state = State {
        turn: 0,
        finished: vec![false; parts.len()],
        plan: plan.to_vec(),
        choices: Vec::new(),
    };
    state.choose(None, None);
    let turns = Arc::new(Turns { state: Mutex::new(state), changed: Condvar::new() });
    let outcomes = thread::scope(|scope| {
        let threads: Vec<_> = parts
            .into_iter()
            .enumerate()
            .map(|(number, part)| {
                let turns = Arc::clone(&turns);
                scope.spawn(move || {
                    turns.wait_for_turn(number, turns.lock());
                    let followed = Arc::clone(&turns);
                    follow(move |step| followed.step(number, step));
                    let outcome = part();
                    turns.finish(number);
                    outcome
                })
            })
            .collect();
        threads.into_iter().map(|it| it.join().expect("no part panics")).collect()
    });
    let choices = std::mem::take(&mut turns.lock().choices);
    (outcomes, choices)
}

/// Plays all orders in which parts are interrupted so often at most. `play` is given a function that runs its
/// parts, once. Returns how many orders there were.
pub(crate) fn all_orders<T: Send>(
    interruptions_max: usize,
    play: impl Fn(&mut dyn FnMut(Vec<Part<'_, T>>) -> Vec<T>),
) -> u64 {
    let mut plans = vec![Vec::new()];
    let mut orders = 0;
    while let Some(plan) = plans.pop() {
        orders += 1;
        let mut choices = Vec::new();
        play(&mut |parts| {
            let (outcomes, chosen) = run(parts, &plan);
            choices = chosen;
            outcomes
        });
        let mut interruptions = 0;
        for (at, choice) in choices.iter().enumerate() {
            let others = choice.able.iter().filter(|part| **part != choice.chosen);
            if at >= plan.len()
                && interruptions + usize::from(choice.keeper.is_some()) <= interruptions_max
            {
                for other in others {
                    let before = choices[..at].iter().map(|it| it.chosen);
                    plans.push(before.chain([*other]).collect());
                }
            }
            interruptions +=
                usize::from(choice.keeper.is_some_and(|keeper| keeper != choice.chosen));
        }
    }
    orders
}
