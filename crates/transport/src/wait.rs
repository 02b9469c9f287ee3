//! One thread waits for several links.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::socket::timespec;
use crate::{Armed, DatagramSocket, Link, OsError};

/// Between two looks at the clock while polling.
const POLLS_PER_CLOCK: u32 = 64;

/// Links whose descriptors fit on the stack; more of them cost an allocation per sleep.
const STACK_LINKS: usize = 16;

/// Why [`wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// The link at this index has something: a frame, an error, or room after `Full`.
    Ready(usize),
    /// The timeout has passed, or a signal arrived, or it was for nothing. Look at everything.
    Other,
}

/// Waits until one of `links` has something to do: polls for `spin`, then sleeps, `timeout` in all
/// (`None`: as long as it takes). Polling costs the whole core, so `spin` is zero where there are
/// more threads than cores. All links are disarmed on return.
///
/// # Errors
/// If the system can't watch the links' descriptors.
pub fn wait<L: Link>(
    links: &mut [L],
    spin: Duration,
    timeout: Option<Duration>,
) -> Result<Wake, OsError> {
    if let Some(index) = find_ready(links) {
        return Ok(Wake::Ready(index));
    }
    let begun = Instant::now();
    let spin = timeout.map_or(spin, |timeout| spin.min(timeout));
    if let Some(index) = poll_for(links, begun, spin) {
        return Ok(Wake::Ready(index));
    }
    let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
    if left.is_some_and(|left| left.is_zero()) {
        return Ok(Wake::Other);
    }
    let armed = links.iter_mut().position(|link| link.arm() == Armed::Ready);
    if let Some(index) = armed {
        links[..index].iter_mut().for_each(Link::disarm);
        return Ok(Wake::Ready(index));
    }
    let slept = sleep(links, left);
    links.iter_mut().for_each(Link::disarm);
    match slept {
        Ok(()) => Ok(find_ready(links).map_or(Wake::Other, Wake::Ready)),
        Err(Errno::INTR) => Ok(Wake::Other),
        Err(error) => Err(error.into()),
    }
}

/// What [`wait_beside`] found; all false if the time has passed or a signal arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Beside {
    /// The link may have something.
    pub link: bool,
    /// One of the sockets may.
    pub datagrams: bool,
}

/// Sleeps until a link or one of the two sockets beside it may have something to do, or `timeout` has passed.
///
/// Unlike [`wait`] it does not look first: whoever calls it has drained both. The link is one whose
/// descriptor says by itself when it has something (TCP); it is not armed, which saves a system
/// call.
///
/// # Errors
/// If the system can't watch their descriptors.
pub fn wait_beside<L: Link>(
    link: &mut L,
    socket: &DatagramSocket,
    multicast: Option<&DatagramSocket>,
    timeout: Duration,
) -> Result<Beside, OsError> {
    let watched =
        |writes: bool| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    let mut fds = [
        PollFd::from_borrowed_fd(link.as_fd(), watched(link.wants_write())),
        PollFd::from_borrowed_fd(socket.as_fd(), watched(socket.wants_write())),
        PollFd::from_borrowed_fd(multicast.unwrap_or(socket).as_fd(), PollFlags::IN),
    ];
    let count = if multicast.is_some() { 3 } else { 2 };
    match poll(&mut fds[..count], Some(&timespec(timeout))) {
        Ok(_) => Ok(Beside {
            link: !fds[0].revents().is_empty(),
            datagrams: fds[1..count].iter().any(|fd| !fd.revents().is_empty()),
        }),
        Err(Errno::INTR) => Ok(Beside { link: false, datagrams: false }),
        Err(error) => Err(error.into()),
    }
}

fn find_ready<L: Link>(links: &mut [L]) -> Option<usize> {
    links.iter_mut().position(Link::is_ready)
}

fn poll_for<L: Link>(links: &mut [L], begun: Instant, spin: Duration) -> Option<usize> {
    while begun.elapsed() < spin {
        for _ in 0..POLLS_PER_CLOCK {
            if let Some(index) = find_ready(links) {
                return Some(index);
            }
            std::hint::spin_loop();
        }
    }
    None
}

fn sleep<L: Link>(links: &[L], left: Option<Duration>) -> Result<(), Errno> {
    let watched = |link: &L| {
        if link.wants_write() { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    };
    let left = left.map(timespec);
    let Some(first) = links.first() else { return poll(&mut [], left.as_ref()).map(drop) };
    if links.len() > STACK_LINKS {
        let mut fds: Vec<_> = links
            .iter()
            .map(|link| PollFd::from_borrowed_fd(link.as_fd(), watched(link)))
            .collect();
        return poll(&mut fds, left.as_ref()).map(drop);
    }
    let mut fds: [PollFd<'_>; STACK_LINKS] = std::array::from_fn(|index| {
        let link = links.get(index).unwrap_or(first);
        PollFd::from_borrowed_fd(link.as_fd(), watched(link))
    });
    poll(&mut fds[..links.len()], left.as_ref()).map(drop)
}
