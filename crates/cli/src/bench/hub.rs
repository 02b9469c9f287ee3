//! The parent of a benchmark's ranks: carries their allgathers and collects their times. If a rank fails or
//! ends early, it waits for the others and says what happened to each.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use super::children::{Children, Event, describe};
use super::message::{FromRank, OverlapTimes, ToRank};
use super::output::{Output, Row};
use super::overlap::Overlap;
use super::plan::Plan;
use super::timing::summarize;
use crate::fabric::Environment;
use crate::flags::PathFlag;
use crate::signals::Signals;

/// How long the other ranks may take to notice that one is gone.
const NOTICE_WAIT: Duration = Duration::from_secs(10);

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BenchError {
    /// The ranks could not be started.
    #[error("the ranks could not be started: {0}")]
    Start(#[from] io::Error),
    /// A rank failed or ended.
    #[error("benchmark failed: {0}")]
    Rank(Outcomes),
    /// A signal asked this process to stop.
    #[error("stopped by {}", crate::signals::name(*.0))]
    Stopped(i32),
    /// A rank sent a message that it may not send now.
    #[error("rank {rank} sent {what}, which was not expected")]
    OutOfTurn {
        /// The rank.
        rank: u32,
        /// What it sent.
        what: &'static str,
    },
}

/// What happened to every rank of a benchmark that failed. The first one is where the failure began: a
/// rank that ended without a message, rather than one that reports what it noticed.
#[derive(Debug)]
pub(crate) struct Outcomes {
    first: u32,
    ranks: BTreeMap<u32, String>,
}

impl fmt::Display for Outcomes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "rank {} {}", self.first, self.ranks[&self.first])?;
        for (rank, outcome) in self.ranks.iter().filter(|(rank, _)| **rank != self.first) {
            write!(f, "\n  rank {rank} {outcome}")?;
        }
        Ok(())
    }
}

/// Runs the plan's work on one path, and puts a row per size into `output`.
pub(super) fn run(
    plan: &Plan,
    path: PathFlag,
    environment: &Environment,
    signals: &Signals,
    output: &mut Output,
) -> Result<(), BenchError> {
    let (sender, events) = channel();
    let forward = sender.clone();
    let _watch = signals.watch(move |signal| {
        // Fails only if the hub is done.
        let _ = forward.send(Event::Signal(signal));
    });
    let children = Children::start(plan.ranks, &plan.work, environment, &sender)?;
    Hub {
        plan,
        path,
        children,
        events,
        parts: vec![None; plan.ranks as usize],
        times_ns: vec![Vec::new(); plan.ranks as usize],
        overlaps: vec![VecDeque::new(); plan.ranks as usize],
        carried: String::new(),
        rows: 0,
        finished: vec![false; plan.ranks as usize],
    }
    .run(output)
}

struct Hub<'a> {
    plan: &'a Plan,
    path: PathFlag,
    children: Children,
    events: Receiver<Event>,
    /// Each rank's part of the allgather that is in progress.
    parts: Vec<Option<Vec<u8>>>,
    /// Each rank's times of the sizes that it has finished and others have not.
    times_ns: Vec<Vec<Vec<u64>>>,
    /// Each rank's overlap in those sizes.
    overlaps: Vec<VecDeque<OverlapTimes>>,
    /// `in_host`, `in_tree` or `direct`, as the ranks say.
    carried: String,
    /// The number of sizes that all ranks have finished.
    rows: usize,
    finished: Vec<bool>,
}

impl Hub<'_> {
    fn run(mut self, output: &mut Output) -> Result<(), BenchError> {
        while self.finished.contains(&false) {
            // The hub holds a sender through its signal watch, so this never disconnects.
            let Ok(event) = self.events.recv() else { return Ok(()) };
            match event {
                Event::Said(rank, FromRank::Failed(what)) => {
                    return Err(self.await_others(rank, format!("failed: {what}"), false));
                }
                Event::Said(rank, message) => self.take(rank, message, output)?,
                Event::Closed(rank) if self.finished[rank as usize] => {}
                Event::Closed(rank) => {
                    let how = self.ending(rank);
                    return Err(self.await_others(rank, how, true));
                }
                Event::Signal(signal) => return Err(BenchError::Stopped(signal)),
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        rank: u32,
        message: FromRank,
        output: &mut Output,
    ) -> Result<(), BenchError> {
        let unexpected = |what| BenchError::OutOfTurn { rank, what };
        match message {
            FromRank::Gather(part) => {
                if self.parts[rank as usize].replace(part).is_some() {
                    return Err(unexpected("a second part of one allgather"));
                }
                self.answer_allgather();
            }
            FromRank::Ready(carried) => {
                output.progress_to(self.path, 0);
                self.carried = carried;
            }
            FromRank::Times(times_ns) => {
                let step = self.rows + self.times_ns[rank as usize].len();
                let wanted = self.plan.work.steps.get(step).map(|step| step.iterations);
                if wanted != Some(times_ns.len() as u64) {
                    return Err(unexpected("times"));
                }
                self.times_ns[rank as usize].push(times_ns);
                self.emit_row(output)?;
            }
            FromRank::Overlap(times) if self.plan.work.overlap => {
                self.overlaps[rank as usize].push_back(times);
            }
            FromRank::Overlap(_) => return Err(unexpected("overlap")),
            FromRank::Finished => self.finished[rank as usize] = true,
            FromRank::Failed(_) => return Err(unexpected("a failure")),
        }
        Ok(())
    }

    /// Answers the allgather once it has every rank's part.
    fn answer_allgather(&mut self) {
        if self.parts.iter().any(Option::is_none) {
            return;
        }
        let all: Vec<u8> = self.parts.iter_mut().filter_map(Option::take).flatten().collect();
        for rank in 0..self.plan.ranks {
            self.children.tell(rank, &ToRank::Gathered(all.clone()));
        }
    }

    /// Outputs the next row once it has every rank's times.
    fn emit_row(&mut self, output: &mut Output) -> Result<(), BenchError> {
        if self.times_ns.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let times_ns: Vec<Vec<u64>> =
            self.times_ns.iter_mut().map(|of_rank| of_rank.remove(0)).collect();
        let overlaps: Vec<OverlapTimes> =
            self.overlaps.iter_mut().filter_map(VecDeque::pop_front).collect();
        let row = Row {
            path: self.path,
            carried: self.carried.clone(),
            step: self.plan.work.steps[self.rows],
            summary: summarize(&times_ns),
            overlap: self.plan.work.overlap.then(|| Overlap::of(&overlaps)),
        };
        self.rows += 1;
        output.row(row)?;
        Ok(())
    }

    /// How a rank ended whose socket closed without a last message.
    fn ending(&mut self, rank: u32) -> String {
        match self.children.wait(rank) {
            Ok(status) => format!("{}{}", describe(status), self.place(rank)),
            Err(error) => format!("ended in an unknown way: {error}"),
        }
    }

    /// Which part of the work a rank was in.
    fn place(&self, rank: u32) -> String {
        let step = self.rows + self.times_ns[rank as usize].len();
        match self.plan.work.steps.get(step) {
            _ if self.carried.is_empty() => " during set-up".to_owned(),
            Some(step) => {
                format!(" during {} of {} bytes", self.plan.work.collective.name(), step.size_bytes)
            }
            None => " after the last size".to_owned(),
        }
    }

    /// Waits until every other rank has ended too, kills those that do not, and reports all of them.
    fn await_others(
        &mut self,
        mut first: u32,
        outcome: String,
        first_is_silent: bool,
    ) -> BenchError {
        let mut silent = first_is_silent;
        let mut ranks = BTreeMap::from([(first, outcome)]);
        for rank in 0..self.plan.ranks {
            self.children.hang_up(rank);
        }
        let noticed_by = Instant::now() + NOTICE_WAIT;
        while ranks.len() < self.plan.ranks as usize {
            let left = noticed_by.saturating_duration_since(Instant::now());
            match self.events.recv_timeout(left) {
                Ok(Event::Said(rank, FromRank::Failed(what))) => {
                    ranks.entry(rank).or_insert_with(|| format!("failed: {what}"));
                }
                Ok(Event::Closed(rank)) if !ranks.contains_key(&rank) => {
                    if !silent {
                        (first, silent) = (rank, true);
                    }
                    let how = self.ending(rank);
                    ranks.insert(rank, how);
                }
                Ok(Event::Signal(_)) | Err(RecvTimeoutError::Timeout) => break,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for rank in 0..self.plan.ranks {
            ranks.entry(rank).or_insert_with(|| self.end_unaware(rank));
        }
        BenchError::Rank(Outcomes { first, ranks })
    }

    fn end_unaware(&mut self, rank: u32) -> String {
        let place = self.place(rank);
        match self.children.kill(rank) {
            Ok(_) => {
                format!("had not noticed after {} s and was ended{place}", NOTICE_WAIT.as_secs())
            }
            Err(error) => format!("had not noticed{place} and could not be ended: {error}"),
        }
    }
}
