//! Rank 0: gathers the other ranks, then their parts of every exchange.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use tributary_transport::Uninherited;

use crate::arrivals::Arrivals;
use crate::error::RendezvousError;
use crate::frame;

#[derive(Debug)]
pub(crate) struct Hub {
    /// Of rank 1 and up.
    members: Vec<Uninherited<TcpStream>>,
    timeout: Duration,
}

impl Hub {
    /// Listens at `address` until all ranks are there, and tells them so.
    pub(crate) fn listen(
        address: &str,
        size: u32,
        timeout: Duration,
    ) -> Result<Self, RendezvousError> {
        if size == 1 {
            return Ok(Self { members: Vec::new(), timeout });
        }
        let listener =
            TcpListener::bind(address).map_err(|problem| cannot_listen(address, problem))?;
        Self::gather(listener, size, timeout)
    }

    /// The same with a listener that is there.
    pub(crate) fn gather(
        listener: TcpListener,
        size: u32,
        timeout: Duration,
    ) -> Result<Self, RendezvousError> {
        let mut arrivals =
            Arrivals::new(listener).map_err(|problem| cannot_listen("its own address", problem))?;
        let mut members: Vec<Option<TcpStream>> = (1..size).map(|_| None).collect();
        let gathered = fill(&mut members, &mut arrivals, size, timeout);
        let mut hub = Self {
            members: members.into_iter().flatten().map(Uninherited::new).collect(),
            timeout,
        };
        hub.tell(gathered.and_then(|()| hub.set_timeouts()), &[])?;
        Ok(hub)
    }

    fn set_timeouts(&self) -> Result<(), RendezvousError> {
        for (rank, member) in (1..).zip(&self.members) {
            let left = |problem| RendezvousError::Left { rank, problem };
            member.set_write_timeout(Some(self.timeout)).map_err(left)?;
            member.set_nodelay(true).map_err(left)?;
        }
        Ok(())
    }

    /// As [`Bootstrap::allgather`](tributary_client::Bootstrap::allgather).
    pub(crate) fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), RendezvousError> {
        let (own, others) = all.split_at_mut(mine.len());
        own.copy_from_slice(mine);
        let received = self.receive(mine.len(), others);
        self.tell(received, all)
    }

    /// The parts of rank 1 and up, one after the other.
    fn receive(&mut self, len_bytes: usize, parts: &mut [u8]) -> Result<(), RendezvousError> {
        let until = Instant::now() + self.timeout;
        for at in 0..self.members.len() {
            let rank = at as u32 + 1;
            let part = &mut parts[at * len_bytes..][..len_bytes];
            let member = &self.members[at];
            let left = until.saturating_duration_since(Instant::now());
            // Zero would mean no limit.
            let limit = left.max(Duration::from_millis(1));
            let received =
                member.set_read_timeout(Some(limit)).and_then(|()| frame::receive(member, part));
            match received {
                Ok(Ok(())) => {}
                Ok(Err(length)) => {
                    return Err(RendezvousError::Mismatch(format!(
                        "rank {rank} exchanges {length} bytes where rank 0 exchanges {len_bytes}: they \
                         make different communicators"
                    )));
                }
                Err(error) if is_late(&error) => return Err(self.missing(at)),
                Err(problem) => return Err(RendezvousError::Left { rank, problem }),
            }
        }
        Ok(())
    }

    /// The rank at `first`, and those behind it that have sent nothing either.
    fn missing(&self, first: usize) -> RendezvousError {
        let has_sent = |member: &Uninherited<TcpStream>| {
            member.set_nonblocking(true).is_ok() && member.peek(&mut [0]).is_ok()
        };
        let silent = (first..).zip(&self.members[first..]);
        let ranks = silent.filter(|(at, member)| *at == first || !has_sent(member));
        RendezvousError::Missing {
            ranks: ranks.map(|(at, _)| at as u32 + 1).collect(),
            what: "take part in the set-up of a communicator",
            waited_s: self.timeout.as_secs_f64(),
        }
    }

    /// Tells all members how the exchange ended.
    fn tell(
        &mut self,
        outcome: Result<(), RendezvousError>,
        all: &[u8],
    ) -> Result<(), RendezvousError> {
        let reason = outcome.as_ref().err().map(ToString::to_string);
        let told = reason.as_deref().map_or(Ok(all), Err);
        let mut lost = Ok(());
        for (rank, member) in (1..).zip(&self.members) {
            let sent = member.set_nonblocking(false).and_then(|()| frame::answer(member, told));
            if let Err(problem) = sent {
                lost = lost.and(Err(RendezvousError::Left { rank, problem }));
            }
        }
        outcome.and(lost)
    }
}

fn cannot_listen(address: &str, problem: io::Error) -> RendezvousError {
    RendezvousError::Listen { address: address.to_owned(), problem }
}

/// Puts everyone who arrives into its place, until all are there.
fn fill(
    members: &mut [Option<TcpStream>],
    arrivals: &mut Arrivals,
    size: u32,
    timeout: Duration,
) -> Result<(), RendezvousError> {
    let until = Instant::now() + timeout;
    while members.iter().any(Option::is_none) {
        if Instant::now() >= until {
            let absent = (1..).zip(members.iter()).filter(|(_, member)| member.is_none());
            return Err(RendezvousError::Missing {
                ranks: absent.map(|(rank, _)| rank).collect(),
                what: "arrive at rank 0",
                waited_s: timeout.as_secs_f64(),
            });
        }
        let arrived = arrivals.take();
        let failed = |error| RendezvousError::Mismatch(format!("rank 0 can't accept: {error}"));
        for (stream, hello) in arrived.map_err(failed)? {
            place(members, stream, hello.rank, hello.size, size)?;
        }
    }
    Ok(())
}

fn place(
    members: &mut [Option<TcpStream>],
    stream: TcpStream,
    rank: u32,
    its_size: u32,
    size: u32,
) -> Result<(), RendezvousError> {
    let place = (rank as usize).checked_sub(1).and_then(|at| members.get_mut(at));
    let problem = match place {
        _ if its_size != size => {
            format!("rank {rank} was told of {its_size} ranks, rank 0 of {size}")
        }
        None => format!("a process says that it is rank {rank} of {size}, beside rank 0"),
        Some(Some(_)) => format!("two processes say that they are rank {rank}"),
        Some(free) => {
            *free = Some(stream);
            return Ok(());
        }
    };
    // It may be gone; the others are told as well.
    let _ = frame::answer(&stream, Err(&problem));
    Err(RendezvousError::Mismatch(problem))
}

/// Whether a receive ended by its time limit.
fn is_late(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
}
