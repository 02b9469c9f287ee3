//! The processes of one benchmark, which start together and end with this value.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use crate::message::{Assignment, FromRank, ToRank};
use crate::work::Work;

/// An event for the hub.
#[derive(Debug)]
pub(crate) enum Event {
    /// A message of a rank.
    Said(u32, FromRank),
    /// A rank closed its socket: it ended, or is about to.
    Closed(u32),
    /// This process was asked to stop; by what.
    Stop(String),
}

/// One process.
struct Rank {
    child: Child,
    socket: UnixStream,
}

/// All processes of one benchmark. Dropping it ends and reaps them.
pub(crate) struct Children {
    ranks: Vec<Rank>,
}

impl Children {
    /// Starts `count` ranks that do `work`, by commands that call [`crate::run_rank`]; their messages go to `events`.
    pub(crate) fn start(
        count: u32,
        work: &Work,
        mut command: impl FnMut() -> io::Result<Command>,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let mut children = Self { ranks: Vec::with_capacity(count as usize) };
        for rank in 0..count {
            let (ours, theirs) = UnixStream::pair()?;
            let child = command()?
                .stdin(Stdio::from(OwnedFd::from(theirs)))
                .stdout(Stdio::null())
                .spawn()?;
            let reader = ours.try_clone()?;
            children.ranks.push(Rank { child, socket: ours });
            let events = events.clone();
            std::thread::Builder::new()
                .name(format!("rank-{rank}"))
                .spawn(move || listen(rank, reader, &events))?;
        }
        for rank in 0..count {
            let work = work.clone();
            // Fails if the rank has ended; its closed socket tells the hub.
            children.tell(rank, &ToRank::Start(Assignment { rank, ranks: count, work }));
        }
        Ok(children)
    }

    /// Sends a message to a rank. If the rank has ended, its closed socket tells the hub.
    pub(crate) fn tell(&mut self, rank: u32, message: &ToRank) {
        let _ = message.write(&mut self.ranks[rank as usize].socket);
    }

    /// Ends the parent's messages to a rank: if the rank waits for one, it gets an error.
    pub(crate) fn hang_up(&mut self, rank: u32) {
        // Fails if the rank has closed the socket.
        let _ = self.ranks[rank as usize].socket.shutdown(std::net::Shutdown::Write);
    }

    /// Waits for a rank to end, and returns how it ended.
    pub(crate) fn wait(&mut self, rank: u32) -> io::Result<ExitStatus> {
        self.ranks[rank as usize].child.wait()
    }

    /// Kills a rank that does not end by itself.
    pub(crate) fn kill(&mut self, rank: u32) -> io::Result<ExitStatus> {
        let child = &mut self.ranks[rank as usize].child;
        child.kill()?;
        child.wait()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            // Fails only for a child that was reaped.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

/// Passes on the messages of a rank until it ends.
fn listen(rank: u32, mut socket: UnixStream, events: &Sender<Event>) {
    while let Ok(message) = FromRank::read(&mut socket) {
        if events.send(Event::Said(rank, message)).is_err() {
            return;
        }
    }
    // Fails only if the hub is gone.
    let _ = events.send(Event::Closed(rank));
}

/// How a process ended, for people.
pub(crate) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("was ended by {}", name_signal(signal)),
        (Some(code), _) => format!("ended with exit code {code}"),
        _ => format!("ended: {status}"),
    }
}

/// A signal for people: `signal 9 (SIGKILL)`.
#[must_use]
pub fn name_signal(signal: i32) -> String {
    match signal_hook::low_level::signal_name(signal) {
        Some(name) => format!("signal {signal} ({name})"),
        None => format!("signal {signal}"),
    }
}
