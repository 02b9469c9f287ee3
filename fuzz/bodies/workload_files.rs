//! Files that describe programs: whatever they hold, they are read or refused with one line, and what is
//! read can be run.

#[path = "choices.rs"]
mod choices;

use choices::Choices;
use tributary_replay::advice::{AdviceError, Range, advise};
use tributary_replay::mix::{self, Mix};
use tributary_replay::run::{Between, ReplayError};
use tributary_replay::{goal as goal_run, run};
use tributary_sim::preset::{self, Preset};
use tributary_sim::system::SystemPlan;
use tributary_sim::world::RunError;
use tributary_workload::goal;
use tributary_workload::trace::{self, Joint};

/// Most ranks of a program that is also run.
const RUN_MAX: u32 = 12;

/// Most calls, and most operations, of such a program.
const CALLS_MAX: u64 = 300;

/// Longest vector of such a program.
const BYTES_MAX: u64 = 20_000;

/// How far an input got.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Reached {
    pub(crate) mixes: u64,
    pub(crate) goals: u64,
    pub(crate) traces: u64,
    pub(crate) run: u64,
    pub(crate) stuck: u64,
    pub(crate) refused: u64,
}

impl core::ops::Add for Reached {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            mixes: self.mixes + other.mixes,
            goals: self.goals + other.goals,
            traces: self.traces + other.traces,
            run: self.run + other.run,
            stuck: self.stuck + other.stuck,
            refused: self.refused + other.refused,
        }
    }
}

/// Reads one file of one kind, and runs what it describes if that is small.
pub(crate) fn run(bytes: &[u8]) -> Reached {
    let mut choices = Choices { bytes };
    let mut reached = Reached::default();
    match choices.below(7) {
        0 => {
            let names: Vec<&str> = mix::names().collect();
            let name = choices.of(&names);
            let good = mix::text(name).expect("it comes with the program");
            mix_file(&choices.spoil(good, WORDS), &mut reached);
        }
        1 => mix_file(&mix_of_lines(&mut choices), &mut reached),
        2 => goal_file(&goal_of_lines(&mut choices), &mut reached),
        3 => {
            let good = "num_ranks 2\nrank 0 {\na: calc 5\nb: send 8b to 1 tag 3\nb requires a\n}\n\
                        rank 1 {\nrecv 8b from -1 tag -1\n}\n";
            goal_file(&choices.spoil(good, WORDS), &mut reached);
        }
        4 => trace_file(
            &choices.spoil(&trace_of_lines(&mut Choices { bytes: &[] }), WORDS),
            &mut reached,
        ),
        5 => trace_file(&trace_of_lines(&mut choices), &mut reached),
        _ => {
            let text = String::from_utf8_lossy(choices.bytes).into_owned();
            mix_file(&text, &mut reached);
            goal_file(&text, &mut reached);
            trace_file(&text, &mut reached);
        }
    }
    reached
}

/// Every message is one line.
fn refused(message: &str, reached: &mut Reached) {
    assert!(!message.is_empty() && !message.contains('\n'), "{message:?}");
    reached.refused += 1;
}

fn with_system(work: impl FnOnce(&Preset, &SystemPlan)) {
    thread_local! {
        static SYSTEM: (Preset, SystemPlan) = {
            let small = "name = \"small\"\nbase = \"edr-sharp\"\n[fabric]\nkind = \"fat-tree\"\n\
                         down = [4, 3]\nup = [1, 2]\n";
            let preset = preset::read(small).expect("it is in order");
            let plan = SystemPlan::new(&preset).expect("so is its fabric");
            (preset, plan)
        };
    }
    SYSTEM.with(|(preset, plan)| work(preset, plan));
}

fn mix_file(text: &str, reached: &mut Reached) {
    match mix::read(text) {
        Ok(mix) => {
            reached.mixes += 1;
            run_mix(&mix, reached);
        }
        Err(error) => refused(&error.to_string(), reached),
    }
}

fn run_mix(mix: &Mix, reached: &mut Reached) {
    let workload = match mix.workload(mix.ranks.min(RUN_MAX), mix.processes_per_host) {
        Ok(workload) => workload,
        Err(error) => return refused(&error.to_string(), reached),
    };
    let is_long = mix.phase.iter().any(|phase| phase.bytes > BYTES_MAX);
    if is_long || workload.scripts[0].calls() > CALLS_MAX {
        return;
    }
    let tree = Between::Tree { multicast: true, only: None };
    with_system(|preset, plan| {
        for between in [Between::Hosts, tree] {
            match run::run(preset, plan, &workload, &between, 1) {
                Ok(outcome) => {
                    assert!(outcome.total_us.is_finite(), "{outcome:?}");
                    reached.run += 1;
                }
                Err(ReplayError::Refused(error)) => refused(&error.to_string(), reached),
                Err(error) => panic!("a mix that fits is run: {error}"),
            }
        }
    });
}

fn goal_file(text: &str, reached: &mut Reached) {
    let program = match goal::read(text) {
        Ok(program) => program,
        Err(error) => return refused(&error.to_string(), reached),
    };
    reached.goals += 1;
    assert_eq!(goal::read(&goal::write(&program)).as_ref(), Ok(&program));
    let is_long = program.ranks.iter().flatten().any(|operation| {
        matches!(operation.task, goal::Task::Send { bytes, .. } if u64::from(bytes) > BYTES_MAX)
    });
    if is_long || program.ranks.len() > RUN_MAX as usize {
        return;
    }
    with_system(|preset, plan| match goal_run::run(preset, plan, &program, 1, 1) {
        Ok(_) => reached.run += 1,
        Err(ReplayError::Run(RunError::Stuck { .. })) => reached.stuck += 1,
        Err(error) => panic!("a program that fits is run: {error}"),
    });
}

fn trace_file(text: &str, reached: &mut Reached) {
    let trace = match trace::read(text) {
        Ok(trace) => trace,
        Err(error) => return refused(&error.to_string(), reached),
    };
    reached.traces += 1;
    let joint = match Joint::new(&trace) {
        Ok(joint) => joint,
        Err(error) => return refused(&error.to_string(), reached),
    };
    let workload = joint.workload("trace");
    let is_long = joint.operations().any(|operation| operation.bytes > BYTES_MAX);
    if is_long || workload.ranks() > RUN_MAX || workload.calls() > CALLS_MAX {
        return;
    }
    with_system(|preset, _| match advise(preset, &joint, 1) {
        Ok(advice) => {
            let all = advice.placements.iter().map(|placement| placement.gain);
            for Range { likely, low, high } in all {
                assert!(1.0 <= low && low <= likely && likely <= high && high.is_finite());
            }
            reached.run += 1;
        }
        Err(AdviceError::Replay(ReplayError::Refused(error))) => {
            refused(&error.to_string(), reached)
        }
        Err(AdviceError::Replay(error)) => panic!("a trace that fits is run: {error}"),
        Err(error) => refused(&error.to_string(), reached),
    });
}

/// Words at and beyond the edges of what is allowed.
const WORDS: &[&str] = &[
    "0",
    "1",
    "2",
    "3",
    "7",
    "64",
    "1048576",
    "1048577",
    "4294967295",
    "4294967296",
    "99999999999999999999",
    "-1",
    "0.5",
    "1e300",
    "nan",
    "inf",
    "{",
    "}",
    "rank 1 {",
    "requires",
    "\n",
    "\"row\"",
    "allreduce",
    "8b",
];

/// A mix of valid and less valid lines.
fn mix_of_lines(choices: &mut Choices<'_>) -> String {
    let number = |choices: &mut Choices<'_>, usual: &[&'static str]| {
        if choices.below(12) > 0 { choices.of(usual) } else { choices.of(WORDS) }
    };
    let ranks = number(choices, &["1", "2", "5", "8", "12"]);
    let per_host = number(choices, &["1", "2", "3"]);
    let iterations = number(choices, &["1", "2", "5"]);
    let mut text = format!(
        "name = \"x\"\nranks = {ranks}\nprocesses_per_host = {per_host}\niterations = {iterations}\n"
    );
    let communicator = choices.of(&["world", "row", "row", "column"]);
    match choices.below(3) {
        0 => {
            text += &format!(
                "[[communicator]]\nname = \"row\"\nblocks_of = {}\n",
                number(choices, &["2", "3"])
            )
        }
        1 => {
            text += &format!(
                "[[communicator]]\nname = \"row\"\nstride = {}\n",
                number(choices, &["2", "3"])
            )
        }
        _ => {}
    }
    for _ in 0..1 + choices.below(4) {
        let operation = choices.of(&[
            "allreduce",
            "reduce",
            "bcast",
            "barrier",
            "allgather",
            "reduce_scatter",
            "scan",
            "exscan",
            "alltoall",
        ]);
        let used = if choices.below(2) == 0 { "world" } else { communicator };
        let bytes = number(choices, &["0", "1", "8", "300", "5000"]);
        let root = number(choices, &["0", "0", "0", "1"]);
        let us = number(choices, &["0", "1", "20.5"]);
        let kind = choices.of(&["constant", "exponential"]);
        let key = if kind == "constant" { "us" } else { "mean_us" };
        text += &format!(
            "[[phase]]\noperation = \"{operation}\"\ncommunicator = \"{used}\"\nbytes = {bytes}\n\
             root = {root}\ncompute = {{ distribution = \"{kind}\", {key} = {us} }}\n"
        );
    }
    text
}

/// A trace in which most ranks agree.
fn trace_of_lines(choices: &mut Choices<'_>) -> String {
    let ranks = 2 + choices.below(4);
    let mut text = format!("tributary-trace 1\nranks {ranks}\n");
    let last = ranks - 1;
    let calls = 1 + choices.below(4);
    let kind = choices.of(&["allreduce", "reduce", "bcast", "barrier", "allgather", "scan"]);
    for rank in 0..ranks {
        let host = choices.of(&["", "", "x"]);
        text += &format!("rank {rank} host h{rank}{host} program_ns 9 left_out 0 nonblocking 0\n");
        text += &format!("communicator 0 0 0-{last}\n");
        if choices.below(4) > 0 {
            text += &format!("communicator 1 0 {rank}\n");
        }
        for call in 0..calls {
            let path = choices.of(&["passed", "passed", "direct", "host", "tree"]);
            let own = if choices.below(8) > 0 { kind } else { choices.of(WORDS) };
            let gap = choices.of(&["0", "500", "70000", "99999999999"]);
            let bytes = choices.of(&["8", "8", "0", "600", "18446744073709551615"]);
            text += &format!("0 {own} {} {bytes} {path} {gap} 900\n", call % 2);
        }
    }
    text
}

/// A program in which much fits together, but not all.
fn goal_of_lines(choices: &mut Choices<'_>) -> String {
    let ranks = 1 + choices.below(4);
    let mut text = format!("num_ranks {ranks}\n");
    for rank in 0..ranks {
        text += &format!("rank {rank} {{\n");
        let operations = 1 + choices.below(5);
        for place in 0..operations {
            let peer = choices.below(ranks);
            let bytes = choices.of(&["1", "8", "600", "9000", "20000"]);
            let tag = choices.of(&["", " tag 1", " tag 2", " tag -1", " cpu 1", " nic 2"]);
            text += &match choices.below(4) {
                0 => format!("l{place}: calc {bytes}\n"),
                1 => format!("l{place}: send {bytes}b to {peer}{tag}\n"),
                2 => format!("l{place}: recv {bytes}b from -1{tag}\n"),
                _ => format!("l{place}: recv {bytes}b from {peer}{tag}\n"),
            };
        }
        for _ in 0..choices.below(4) {
            let (one, other) = (choices.below(operations), choices.below(operations));
            let how = choices.of(&["requires", "irequires"]);
            text += &format!("l{one} {how} l{other}\n");
        }
        text += "}\n";
    }
    text
}
