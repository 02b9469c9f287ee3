//! The TCP connection to the manager, with a deadline for what is read and written.
//!
//! Its end means something: while rank 0 of a job has one open, the manager keeps the job's place. So forked workers, which may
//! outlive the process, have no copy of it.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use rustix::net::{RecvFlags, recv};
use tributary_inheritance::Uninherited;
use ureq::Timeout;
use ureq::unversioned::transport::NextTimeout;

/// A deadline that has come is told as one that comes now: a socket takes no timeout of zero.
const TIMEOUT_MIN: Duration = Duration::from_millis(1);

pub(super) struct Connection {
    socket: Uninherited<TcpStream>,
    deadline: Option<Instant>,
    /// What the HTTP client calls the deadline.
    reason: Timeout,
}

impl Connection {
    /// Connects to the first of these addresses that answers.
    pub(super) fn to(addresses: &[SocketAddr], timeout: NextTimeout) -> Result<Self, ureq::Error> {
        let deadline = deadline_of(timeout);
        let mut refused = io::Error::from(io::ErrorKind::AddrNotAvailable);
        for (tried, address) in addresses.iter().enumerate() {
            let connected = match left_until(deadline) {
                // So that one that does not answer leaves time for those after it.
                Some(left) => {
                    TcpStream::connect_timeout(address, left / (addresses.len() - tried) as u32)
                }
                None => TcpStream::connect(address),
            };
            match connected.and_then(|socket| socket.set_nodelay(true).map(|()| socket)) {
                Ok(socket) => {
                    let socket = Uninherited::new(socket);
                    return Ok(Self { socket, deadline, reason: timeout.reason });
                }
                Err(error) => refused = error,
            }
        }
        Err(explain(refused, timeout.reason).into())
    }

    /// Sets the deadline of the reads and writes that follow.
    pub(super) fn set_timeout(&mut self, timeout: NextTimeout) {
        (self.deadline, self.reason) = (deadline_of(timeout), timeout.reason);
    }

    /// Whether neither side has closed it, and nothing has come that nobody asked for.
    pub(super) fn is_open(&self) -> bool {
        recv(&*self.socket, &mut [0_u8; 1][..], RecvFlags::PEEK | RecvFlags::DONTWAIT)
            .is_err_and(|error| error == rustix::io::Errno::AGAIN)
    }
}

impl Read for Connection {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(left_until(self.deadline))?;
        (&*self.socket).read(buffer).map_err(|error| explain(error, self.reason))
    }
}

impl Write for Connection {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(left_until(self.deadline))?;
        (&*self.socket).write(bytes).map_err(|error| explain(error, self.reason))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// None for one that never comes.
fn deadline_of(timeout: NextTimeout) -> Option<Instant> {
    let never = timeout.after.is_not_happening();
    (!never).then(|| Instant::now().checked_add(*timeout.after)).flatten()
}

fn left_until(deadline: Option<Instant>) -> Option<Duration> {
    deadline.map(|at| at.saturating_duration_since(Instant::now()).max(TIMEOUT_MIN))
}

/// Says which deadline has come, where one has.
fn explain(error: io::Error, reason: Timeout) -> io::Error {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            io::Error::other(ureq::Error::Timeout(reason))
        }
        _ => error,
    }
}
