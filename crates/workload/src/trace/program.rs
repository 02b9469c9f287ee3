//! A trace as a program that the simulator can run.

use std::collections::HashMap;
use std::sync::Arc;

use tributary_algorithms::CollectiveKind;

use super::{Path, RankTrace, Trace, Traced, TracedCommunicator};
use crate::{Call, Communicator, Distribution, Phase, Script, Workload};

/// Ranks of one communicator recorded operations that can't be one program's.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "operation {index} over {members} ranks from rank {first} on is {one} at rank {one_rank} and {other} at \
     rank {other_rank}; allowed: the same collective and root at all"
)]
pub struct Disagreement {
    index: usize,
    members: usize,
    first: u32,
    one: &'static str,
    one_rank: u32,
    other: &'static str,
    other_rank: u32,
}

/// The operations of a trace that all their members recorded.
#[derive(Clone, Debug)]
pub struct Joint<'a> {
    trace: &'a Trace,
    communicators: Vec<&'a TracedCommunicator>,
    /// For each rank, the numbers of its communicators.
    numbered: Vec<Vec<usize>>,
    /// For each rank, how many of its operations are joint.
    lengths: Vec<usize>,
    /// How long each operation took at its ranks, by communicator, in order.
    times: Vec<Vec<OperationTimes>>,
}

/// How long one operation took at its ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OperationTimes {
    /// The collective.
    pub kind: CollectiveKind,
    /// The longest contribution of a rank; nearly always all are alike.
    pub bytes: u64,
    /// How it went there.
    pub path: Path,
    root: u32,
    rank: u32,
    /// When it began there, on that rank's clock.
    pub began_ns: u64,
    /// The shortest time of a rank: about that of the last to come, which waits for no other.
    pub shortest_ns: u64,
}

impl<'a> Joint<'a> {
    /// What ranks did together.
    ///
    /// A communicator's operations end where the first of its ranks stopped recording, and with them all
    /// that comes later at its ranks.
    ///
    /// # Errors
    /// [`Disagreement`].
    pub fn new(trace: &'a Trace) -> Result<Self, Disagreement> {
        // The reader gives equal members one list.
        let key = |own: &TracedCommunicator| (own.ordinal, Arc::as_ptr(&own.members).cast::<u32>());
        let mut numbers: HashMap<(u32, *const u32), usize> = HashMap::new();
        let mut communicators = Vec::new();
        let numbered: Vec<Vec<usize>> = trace
            .ranks
            .iter()
            .map(|rank| {
                let number = |own| {
                    *numbers.entry(key(own)).or_insert_with(|| {
                        communicators.push(own);
                        communicators.len() - 1
                    })
                };
                rank.communicators.iter().map(number).collect()
            })
            .collect();
        let lengths = common_lengths(trace, &numbered, &communicators);
        let times = times(trace, &numbered, &lengths, &communicators)?;
        Ok(Self { trace, communicators, numbered, lengths, times })
    }

    /// Every operation: those of one communicator after those of another, each in order.
    pub fn operations(&self) -> impl Iterator<Item = &OperationTimes> {
        self.times.iter().flatten()
    }

    /// How long the recorded part of the program is, at the rank where it is longest.
    #[must_use]
    pub fn recorded_ns(&self) -> u64 {
        let of_rank = |(rank, length): (&RankTrace, &usize)| -> u64 {
            rank.operations[..*length].iter().map(|own| own.gap_ns + own.length_ns).sum()
        };
        self.trace.ranks.iter().zip(&self.lengths).map(of_rank).max().unwrap_or(0)
    }

    /// The program: each rank computes for as long as it did between its collectives. Point-to-point messages
    /// and nonblocking collectives count as computing.
    #[must_use]
    pub fn workload(&self, name: &str) -> Workload {
        let scripts = (0..self.trace.ranks.len()).map(|rank| self.script(rank));
        Workload {
            name: name.to_owned(),
            hosts: hosts(self.trace),
            scripts: scripts.collect(),
            script_of: (0..self.trace.ranks.len() as u32).collect(),
            communicators: self
                .communicators
                .iter()
                .map(|own| Communicator {
                    name: format!("{} ranks", own.members.len()),
                    parts: vec![own.members.to_vec()],
                })
                .collect(),
            skew: Distribution::NONE,
            imbalance: 0.0,
        }
    }

    fn script(&self, rank: usize) -> Script {
        let numbers = &self.numbered[rank];
        let mut done = vec![0; numbers.len()];
        let operations = &self.trace.ranks[rank].operations[..self.lengths[rank]];
        let phases = operations.iter().map(|traced| {
            let own = traced.communicator as usize;
            let communicator = numbers[own];
            let OperationTimes { kind, root, bytes, .. } = self.times[communicator][done[own]];
            done[own] += 1;
            Phase {
                compute: Distribution::Constant { us: traced.gap_ns as f64 / 1e3 },
                call: Call { communicator, kind, root, bytes },
                repeat: 1,
                every: 1,
            }
        });
        Script { iterations: 1, phases: phases.collect() }
    }
}

/// The host of each rank, numbered in the order of the first rank there.
fn hosts(trace: &Trace) -> Vec<u32> {
    let mut numbers: HashMap<&str, u32> = HashMap::new();
    trace
        .ranks
        .iter()
        .map(|rank| {
            let next = numbers.len() as u32;
            *numbers.entry(&rank.host).or_insert(next)
        })
        .collect()
}

/// How many operations of each rank its partners have as well: ranks go on together as far as they can.
fn common_lengths(
    trace: &Trace,
    numbered: &[Vec<usize>],
    communicators: &[&TracedCommunicator],
) -> Vec<usize> {
    let mut lengths = vec![0; trace.ranks.len()];
    let mut here: Vec<Vec<u32>> = vec![Vec::new(); communicators.len()];
    let mut moving: Vec<u32> = (0..trace.ranks.len() as u32).collect();
    while let Some(rank) = moving.pop() {
        let operations = &trace.ranks[rank as usize].operations;
        let Some(traced) = operations.get(lengths[rank as usize]) else { continue };
        let number = numbered[rank as usize][traced.communicator as usize];
        here[number].push(rank);
        if here[number].len() == communicators[number].members.len() {
            for rank in here[number].drain(..) {
                lengths[rank as usize] += 1;
                moving.push(rank);
            }
        }
    }
    lengths
}

/// The times of all joint operations, which ranks must agree on.
fn times(
    trace: &Trace,
    numbered: &[Vec<usize>],
    lengths: &[usize],
    communicators: &[&TracedCommunicator],
) -> Result<Vec<Vec<OperationTimes>>, Disagreement> {
    let mut known: Vec<Vec<OperationTimes>> = vec![Vec::new(); communicators.len()];
    for (rank, own) in (0..).zip(&trace.ranks) {
        let mut done = vec![0; own.communicators.len()];
        let mut now_ns = 0;
        for traced in &own.operations[..lengths[rank as usize]] {
            let Traced { kind, root, bytes, path, gap_ns, length_ns, .. } = *traced;
            let communicator = traced.communicator as usize;
            let number = numbered[rank as usize][communicator];
            let began_ns = now_ns + gap_ns;
            now_ns = began_ns + length_ns;
            let index = done[communicator];
            done[communicator] += 1;
            match known[number].get_mut(index) {
                None => known[number].push(OperationTimes {
                    kind,
                    bytes,
                    path,
                    root,
                    rank,
                    began_ns,
                    shortest_ns: length_ns,
                }),
                Some(one) if one.kind == kind && one.root == root => {
                    one.shortest_ns = one.shortest_ns.min(length_ns);
                    one.bytes = one.bytes.max(bytes);
                }
                Some(one) => {
                    return Err(Disagreement {
                        index,
                        members: communicators[number].members.len(),
                        first: communicators[number].members[0],
                        one: one.kind.name(),
                        one_rank: one.rank,
                        other: kind.name(),
                        other_rank: rank,
                    });
                }
            }
        }
    }
    Ok(known)
}
