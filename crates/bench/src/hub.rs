//! The parent of a benchmark's ranks: carries their allgathers and collects their times. If a rank fails or
//! ends early, it waits for the others and says what happened to each.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::io;
use std::process::Command;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

use crate::children::{Children, Event, describe};
use crate::message::{FromRank, OverlapTimes, ToRank};
use crate::overlap::Overlap;
use crate::timing::{Summary, summarize};
use crate::work::{Step, Work};

/// How long the other ranks may take to notice that one is gone.
const NOTICE_WAIT: Duration = Duration::from_secs(10);

/// Why a benchmark failed.
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// The ranks could not be started.
    #[error("the ranks could not be started: {0}")]
    Start(#[source] io::Error),
    /// A row could not be shown.
    #[error(transparent)]
    Output(#[from] io::Error),
    /// A rank failed or ended.
    #[error("benchmark failed: {0}")]
    Rank(Outcomes),
    /// This process was asked to stop; by what.
    #[error("stopped by {0}")]
    Stopped(String),
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
pub struct Outcomes {
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

/// The times of one size.
#[derive(Clone, Debug)]
pub struct Row {
    /// `in_host`, `in_tree` or `direct`, as the ranks say; several with commas between them.
    pub carried: String,
    /// The size.
    pub step: Step,
    /// The figures.
    pub summary: Summary,
    /// With overlap, how much of it computation hides.
    pub overlap: Option<Overlap>,
}

/// Ranks at work. Dropping it ends and reaps them.
pub struct Benchmark<'a> {
    work: &'a Work,
    ranks: u32,
    children: Children,
    sender: Sender<Event>,
    events: Receiver<Event>,
    /// Each rank's part of the allgather that is in progress.
    parts: Vec<Option<Vec<u8>>>,
    /// Each rank's times of the sizes that it has finished and others have not.
    times_ns: Vec<Vec<Vec<u64>>>,
    /// Each rank's overlap in those sizes.
    overlaps: Vec<VecDeque<OverlapTimes>>,
    /// Empty until the ranks are set up; then as in [`Row`].
    carried: String,
    /// The number of sizes that all ranks have finished.
    rows: usize,
    finished: Vec<bool>,
}

impl<'a> Benchmark<'a> {
    /// Starts `ranks` processes by `command`, each a program that calls [`crate::run_rank`]. Their standard streams are set here.
    ///
    /// # Errors
    /// If a process does not start.
    pub fn start(
        ranks: u32,
        work: &'a Work,
        command: impl FnMut() -> io::Result<Command>,
    ) -> Result<Self, BenchError> {
        let (sender, events) = channel();
        let children = Children::start(ranks, work, command, &sender).map_err(BenchError::Start)?;
        let of_each = ranks as usize;
        Ok(Self {
            work,
            ranks,
            children,
            sender,
            events,
            parts: vec![None; of_each],
            times_ns: vec![Vec::new(); of_each],
            overlaps: vec![VecDeque::new(); of_each],
            carried: String::new(),
            rows: 0,
            finished: vec![false; of_each],
        })
    }

    /// A function that ends [`Benchmark::run`] with [`BenchError::Stopped`], for any thread. It takes what asked for that.
    pub fn stopper(&self) -> impl Fn(String) + Send + 'static {
        let sender = self.sender.clone();
        move |cause| {
            // Fails only if the benchmark is over.
            let _ = sender.send(Event::Stop(cause));
        }
    }

    /// Waits until the ranks are done, and gives `on_row` the times of each size as soon as all ranks have them.
    ///
    /// # Errors
    /// If a rank fails or ends early, [`Benchmark::stopper`] was used, or `on_row` fails.
    pub fn run(mut self, mut on_row: impl FnMut(Row) -> io::Result<()>) -> Result<(), BenchError> {
        while self.finished.contains(&false) {
            // There is a sender in `self`, so this never disconnects.
            let Ok(event) = self.events.recv() else { return Ok(()) };
            match event {
                Event::Said(rank, FromRank::Failed(what)) => {
                    return Err(self.await_others(rank, format!("failed: {what}"), false));
                }
                Event::Said(rank, message) => self.take(rank, message, &mut on_row)?,
                Event::Closed(rank) if self.finished[rank as usize] => {}
                Event::Closed(rank) => {
                    let how = self.ending(rank);
                    return Err(self.await_others(rank, how, true));
                }
                Event::Stop(cause) => return Err(BenchError::Stopped(cause)),
            }
        }
        Ok(())
    }

    fn take(
        &mut self,
        rank: u32,
        message: FromRank,
        on_row: &mut impl FnMut(Row) -> io::Result<()>,
    ) -> Result<(), BenchError> {
        let unexpected = |what| BenchError::OutOfTurn { rank, what };
        match message {
            FromRank::Gather(part) => {
                if self.parts[rank as usize].replace(part).is_some() {
                    return Err(unexpected("a second part of one allgather"));
                }
                self.answer_allgather();
            }
            FromRank::Ready(carried) => self.carried = carried,
            FromRank::Times(times_ns) => {
                let step = self.rows + self.times_ns[rank as usize].len();
                let wanted = self.work.steps.get(step).map(|step| step.iterations);
                if wanted != Some(times_ns.len() as u64) {
                    return Err(unexpected("times"));
                }
                self.times_ns[rank as usize].push(times_ns);
                self.finish_row(on_row)?;
            }
            FromRank::Overlap(times) if self.work.overlap => {
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
        for rank in 0..self.ranks {
            self.children.tell(rank, &ToRank::Gathered(all.clone()));
        }
    }

    /// Gives the next row away once it has every rank's times.
    fn finish_row(
        &mut self,
        on_row: &mut impl FnMut(Row) -> io::Result<()>,
    ) -> Result<(), BenchError> {
        if self.times_ns.iter().any(Vec::is_empty) {
            return Ok(());
        }
        let times_ns: Vec<Vec<u64>> =
            self.times_ns.iter_mut().map(|of_rank| of_rank.remove(0)).collect();
        let overlaps: Vec<OverlapTimes> =
            self.overlaps.iter_mut().filter_map(VecDeque::pop_front).collect();
        let row = Row {
            carried: self.carried.clone(),
            step: self.work.steps[self.rows],
            summary: summarize(&times_ns),
            overlap: self.work.overlap.then(|| Overlap::of(&overlaps)),
        };
        self.rows += 1;
        Ok(on_row(row)?)
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
        match self.work.steps.get(step) {
            _ if self.carried.is_empty() => " during set-up".to_owned(),
            Some(step) => {
                format!(" during {} of {} bytes", self.work.collective.name(), step.size_bytes)
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
        for rank in 0..self.ranks {
            self.children.hang_up(rank);
        }
        let noticed_by = Instant::now() + NOTICE_WAIT;
        while ranks.len() < self.ranks as usize {
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
                Ok(Event::Stop(_)) | Err(RecvTimeoutError::Timeout) => break,
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        for rank in 0..self.ranks {
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
