//! The processes of one benchmark: started together, and none of them outlives this value.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::Sender;

use super::message::{Assignment, FromRank, ToRank, Work};
use crate::fabric::Environment;

/// What reached the hub.
#[derive(Debug)]
pub(super) enum Event {
    /// A rank said something.
    Said(u32, FromRank),
    /// A rank's socket is closed: it ended, or is about to.
    Closed(u32),
    /// A person or the system asks this process to stop.
    Signal(i32),
}

/// One process.
struct Rank {
    child: Child,
    socket: UnixStream,
}

/// All processes of one benchmark. Dropping it ends and reaps them.
pub(super) struct Children {
    ranks: Vec<Rank>,
}

impl Children {
    /// Starts `count` ranks that do `work`; what they say goes to `events`.
    pub(super) fn start(
        count: u32,
        work: &Work,
        environment: &Environment,
        events: &Sender<Event>,
    ) -> io::Result<Self> {
        let mut children = Self { ranks: Vec::with_capacity(count as usize) };
        for rank in 0..count {
            let (ours, theirs) = UnixStream::pair()?;
            let child = Command::new(std::env::current_exe()?)
                .arg("bench-rank")
                .envs(environment.variables())
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
            // A rank that has ended by now is noticed by its closed socket.
            children.tell(rank, &ToRank::Start(Assignment { rank, ranks: count, work }));
        }
        Ok(children)
    }

    /// Tells a rank something. That it can't hear any more is noticed by its closed socket.
    pub(super) fn tell(&mut self, rank: u32, message: &ToRank) {
        let _ = message.write(&mut self.ranks[rank as usize].socket);
    }

    /// Tells a rank that nothing more comes: what it waits for from the parent, it gets an error
    /// for.
    pub(super) fn hang_up(&mut self, rank: u32) {
        // The socket may be closed from the other side already.
        let _ = self.ranks[rank as usize].socket.shutdown(std::net::Shutdown::Write);
    }

    /// How a rank ended; waits for that.
    pub(super) fn wait(&mut self, rank: u32) -> io::Result<ExitStatus> {
        self.ranks[rank as usize].child.wait()
    }

    /// Ends a rank that does not end by itself.
    pub(super) fn kill(&mut self, rank: u32) -> io::Result<ExitStatus> {
        let child = &mut self.ranks[rank as usize].child;
        child.kill()?;
        child.wait()
    }
}

impl Drop for Children {
    fn drop(&mut self) {
        for rank in &mut self.ranks {
            // Fails only for a child that is reaped already.
            let _ = rank.child.kill();
            let _ = rank.child.wait();
        }
    }
}

/// Passes on what a rank says until it ends.
fn listen(rank: u32, mut socket: UnixStream, events: &Sender<Event>) {
    while let Ok(message) = FromRank::read(&mut socket) {
        if events.send(Event::Said(rank, message)).is_err() {
            return;
        }
    }
    // A hub that is gone needs no news.
    let _ = events.send(Event::Closed(rank));
}

/// How a process ended, for people.
pub(super) fn describe(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (_, Some(signal)) => format!("was ended by {}", crate::signals::name(signal)),
        (Some(code), _) => format!("ended with exit code {code}"),
        _ => format!("ended: {status}"),
    }
}
