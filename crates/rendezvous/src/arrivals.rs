//! Connections that have not said yet who they are. One that says nothing, or something else, holds up
//! nobody and is dropped.

use std::io::{self, Read};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::frame::Hello;

/// How long a connection may take to say who it is.
const HELLO_WAIT: Duration = Duration::from_secs(5);
/// Connections that may be at it at a time; the oldest gives way.
const ARRIVALS_MAX: usize = 256;
/// Between two looks at what is late.
const LOOK_INTERVAL: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };

pub(crate) struct Arrivals {
    listener: TcpListener,
    pending: Vec<Arrival>,
}

struct Arrival {
    stream: TcpStream,
    hello: [u8; Hello::BYTES],
    len_bytes: usize,
    since: Instant,
}

impl Arrivals {
    pub(crate) fn new(listener: TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self { listener, pending: Vec::new() })
    }

    /// Waits a little, and hands out who has said by now who it is.
    pub(crate) fn take(&mut self) -> io::Result<Vec<(TcpStream, Hello)>> {
        self.wait()?;
        self.accept()?;
        let mut known = Vec::new();
        for mut arrival in std::mem::take(&mut self.pending) {
            match arrival.advance() {
                Ok(true) => {
                    if let Some(hello) = Hello::decode(&arrival.hello) {
                        arrival.stream.set_nonblocking(false)?;
                        known.push((arrival.stream, hello));
                    }
                }
                Ok(false) if arrival.since.elapsed() < HELLO_WAIT => self.pending.push(arrival),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(known)
    }

    fn wait(&self) -> io::Result<()> {
        let streams =
            self.pending.iter().map(|arrival| PollFd::new(&arrival.stream, PollFlags::IN));
        let mut fds: Vec<PollFd<'_>> = streams.collect();
        fds.push(PollFd::new(&self.listener, PollFlags::IN));
        match poll(&mut fds, Some(&LOOK_INTERVAL)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
            Err(errno) => Err(errno.into()),
        }
    }

    fn accept(&mut self) -> io::Result<()> {
        loop {
            match self.listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(true)?;
                    if self.pending.len() == ARRIVALS_MAX {
                        self.pending.remove(0);
                    }
                    let (hello, since) = ([0; Hello::BYTES], Instant::now());
                    self.pending.push(Arrival { stream, hello, len_bytes: 0, since });
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // The connection that was to be accepted is gone.
                Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {}
                Err(error) => return Err(error),
            }
        }
    }
}

impl Arrival {
    /// Reads on; whether the hello is complete.
    fn advance(&mut self) -> io::Result<bool> {
        while self.len_bytes < Hello::BYTES {
            match self.stream.read(&mut self.hello[self.len_bytes..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.len_bytes += read,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}
