//! A rank other than 0: finds rank 0, and gives it its part of every exchange.

use std::io::{self, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::{Duration, Instant};

use tributary_inheritance::Uninherited;

use crate::error::RendezvousError;
use crate::frame::{self, Hello};

/// Between two attempts to reach rank 0.
const ATTEMPT_INTERVAL: Duration = Duration::from_millis(50);
/// Rank 0 knows whom it waits for, so it is to give up first and say so.
const GRACE: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct Member {
    hub: Uninherited<TcpStream>,
}

impl Member {
    /// Connects to rank 0, and waits until it has gathered everyone.
    pub(crate) fn join(
        address: &str,
        rank: u32,
        size: u32,
        timeout: Duration,
    ) -> Result<Self, RendezvousError> {
        let hub = Uninherited::new(connect(address, timeout)?);
        let mut member = Self { hub };
        member.say_hello(rank, size, timeout).map_err(left_by_rank_0)?;
        member.receive(&mut [])?;
        Ok(member)
    }

    fn say_hello(&mut self, rank: u32, size: u32, timeout: Duration) -> io::Result<()> {
        self.hub.set_nodelay(true)?;
        self.hub.set_write_timeout(Some(timeout))?;
        self.hub.set_read_timeout(Some(timeout + GRACE))?;
        (&*self.hub).write_all(&Hello { rank, size }.encode())
    }

    /// As [`Bootstrap::allgather`](tributary_client::Bootstrap::allgather).
    pub(crate) fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), RendezvousError> {
        let sent = frame::send(&self.hub, mine);
        match sent {
            Ok(()) => self.receive(all),
            // Rank 0 ends an exchange without this part if another rank is gone. It has said so before it left.
            Err(problem) if has_closed(&problem) => match self.receive(all) {
                Err(RendezvousError::Left { .. }) | Ok(()) => Err(left_by_rank_0(problem)),
                told => told,
            },
            Err(problem) => Err(left_by_rank_0(problem)),
        }
    }

    fn receive(&mut self, bytes: &mut [u8]) -> Result<(), RendezvousError> {
        let answer = frame::receive_answer(&self.hub, bytes).map_err(left_by_rank_0)?;
        answer.map_err(RendezvousError::Told)
    }
}

fn has_closed(problem: &io::Error) -> bool {
    matches!(problem.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset)
}

fn left_by_rank_0(problem: io::Error) -> RendezvousError {
    RendezvousError::Left { rank: 0, problem }
}

/// Tries until rank 0 listens.
fn connect(address: &str, timeout: Duration) -> Result<TcpStream, RendezvousError> {
    let until = Instant::now() + timeout;
    loop {
        let problem = match attempt(address, timeout) {
            Ok(stream) => return Ok(stream),
            Err(problem) => problem,
        };
        if Instant::now() + ATTEMPT_INTERVAL >= until {
            let (address, waited_s) = (address.to_owned(), timeout.as_secs_f64());
            return Err(RendezvousError::NoHub { address, waited_s, problem });
        }
        std::thread::sleep(ATTEMPT_INTERVAL);
    }
}

fn attempt(address: &str, timeout: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::other("the name has no address");
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, timeout.max(Duration::from_millis(1))) {
            Ok(stream) => return Ok(stream),
            Err(problem) => last = problem,
        }
    }
    Err(last)
}
