//! Writing GOAL.

use std::fmt::{self, Write as _};

use super::{Goal, Operation, Task};

/// The program as text.
#[must_use]
pub fn write(goal: &Goal) -> String {
    let mut text = format!("num_ranks {}\n", goal.ranks.len());
    for (rank, operations) in goal.ranks.iter().enumerate() {
        write_rank(&mut text, rank, operations).expect("a text takes everything");
    }
    text
}

fn write_rank(text: &mut String, rank: usize, operations: &[Operation]) -> fmt::Result {
    writeln!(text, "\nrank {rank} {{")?;
    // Labels must be known before a dependency names them.
    for (place, operation) in operations.iter().enumerate() {
        write!(text, "l{place}: ")?;
        write_task(text, operation)?;
    }
    for (place, operation) in operations.iter().enumerate() {
        for (how, list) in [("requires", &operation.requires), ("irequires", &operation.irequires)]
        {
            for earlier in list {
                writeln!(text, "l{place} {how} l{earlier}")?;
            }
        }
    }
    writeln!(text, "}}")
}

fn write_task(text: &mut String, operation: &Operation) -> fmt::Result {
    let any = |number: Option<u32>| number.map_or("-1".to_owned(), |number| number.to_string());
    match operation.task {
        Task::Calc { ns } => write!(text, "calc {ns}")?,
        Task::Send { bytes, to, tag } => write!(text, "send {bytes}b to {to} tag {tag}")?,
        Task::Receive { bytes, from, tag } => {
            write!(text, "recv {bytes}b from {} tag {}", any(from), any(tag))?;
        }
    }
    if operation.cpu > 0 {
        write!(text, " cpu {}", operation.cpu)?;
    }
    if operation.nic > 0 {
        write!(text, " nic {}", operation.nic)?;
    }
    writeln!(text)
}
