//! Rank 0: gathers the other ranks, then their parts of every exchange.

use std::io;
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tributary_inheritance::Uninherited;
use tributary_waits::exchange::Exchange;

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

    /// The parts of rank 1 and up, in the order in which they come. A rank that is gone ends the exchange, also while others
    /// are late.
    fn receive(&mut self, len_bytes: usize, parts: &mut [u8]) -> Result<(), RendezvousError> {
        let until = Instant::now() + self.timeout;
        let mut exchange = Exchange::new(self.members.len());
        while !exchange.is_complete() {
            let left = until.saturating_duration_since(Instant::now());
            let watched =
                exchange.peers_to_watch().map(|at| (at, &*self.members[at], exchange.awaits(at)));
            let ready = ready(watched, left).map_err(|error| {
                RendezvousError::Mismatch(format!("rank 0 can't wait: {error}"))
            })?;
            if ready.is_empty() && left.is_zero() {
                return Err(self.missing(&exchange));
            }
            for at in ready {
                let rank = at as u32 + 1;
                if !exchange.awaits(at) {
                    return Err(RendezvousError::Left { rank, problem: gone_error() });
                }
                let part = &mut parts[at * len_bytes..][..len_bytes];
                self.receive_part(at, part, left)?;
                exchange.on_part(at);
            }
        }
        Ok(())
    }

    fn receive_part(
        &self,
        at: usize,
        part: &mut [u8],
        left: Duration,
    ) -> Result<(), RendezvousError> {
        let (rank, member) = (at as u32 + 1, &self.members[at]);
        // Zero would mean no limit.
        let limit = left.max(Duration::from_millis(1));
        let len_bytes = part.len();
        let received =
            member.set_read_timeout(Some(limit)).and_then(|()| frame::receive(member, part));
        match received {
            Ok(Ok(())) => Ok(()),
            Ok(Err(length)) => Err(RendezvousError::Mismatch(format!(
                "rank {rank} exchanges {length} bytes where rank 0 exchanges {len_bytes}: they make \
                 different communicators"
            ))),
            Err(problem) => Err(RendezvousError::Left { rank, problem }),
        }
    }

    /// Those that have not brought their parts.
    fn missing(&self, exchange: &Exchange) -> RendezvousError {
        RendezvousError::Missing {
            ranks: exchange.awaited_peers().map(|at| at as u32 + 1).collect(),
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
        // Rank 0 knows nothing of a rank that has not arrived.
        let arrived = (0..).zip(members.iter());
        let arrived = arrived.filter_map(|(at, member)| Some((at, member.as_ref()?, false)));
        if let Ok([at, ..]) = ready(arrived, Duration::ZERO).as_deref() {
            return Err(RendezvousError::Left { rank: *at as u32 + 1, problem: gone_error() });
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

/// Waits until some of these connections have ended, or have something to be read where that is asked for. Which.
fn ready<'a>(
    watched: impl Iterator<Item = (usize, &'a TcpStream, bool)>,
    time: Duration,
) -> io::Result<Vec<usize>> {
    let (numbers, mut fds): (Vec<usize>, Vec<PollFd<'_>>) = watched
        .map(|(at, stream, reads)| {
            let input = if reads { PollFlags::IN } else { PollFlags::empty() };
            (at, PollFd::new(stream, input | PollFlags::RDHUP))
        })
        .unzip();
    let nanos = i64::from(time.subsec_nanos());
    match poll(&mut fds, Some(&Timespec { tv_sec: time.as_secs() as i64, tv_nsec: nanos })) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(errno) => return Err(errno.into()),
    }
    let is_ready = |(at, fd): (usize, &PollFd<'_>)| (!fd.revents().is_empty()).then_some(at);
    Ok(numbers.into_iter().zip(&fds).filter_map(is_ready).collect())
}

fn gone_error() -> io::Error {
    io::ErrorKind::UnexpectedEof.into()
}
