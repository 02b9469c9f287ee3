//! One thread waits for several links, or for a link and its datagram sockets.

use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;

use crate::socket::timespec;
use crate::{Armed, DatagramSocket, Link, OsError};

/// Polls between two readings of the clock.
const POLLS_PER_CLOCK: u32 = 64;

/// Links whose descriptors fit on the stack. More links cost an allocation per sleep.
const STACK_LINKS: usize = 16;

/// Why [`wait`] returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wake {
    /// The link at this index has a frame, an error, or room after `Full`.
    Ready(usize),
    /// The timeout has passed, a signal arrived, or the wake-up was spurious. Poll everything.
    Other,
}

/// Waits until one of `links` has something to do. Polls for `spin`, then sleeps; `timeout` bounds
/// both together (`None`: no bound). Polling costs a whole core, so `spin` should be zero where
/// there are more threads than cores. All links are disarmed on return.
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

/// What ended [`wait_with_datagrams`]; all false after a timeout or a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WakeSources {
    /// The link may have something to do.
    pub link: bool,
    /// One of the sockets may have something to do.
    pub datagrams: bool,
}

/// Sleeps until a link or one of its two datagram sockets may have something to do, or `timeout`
/// has passed.
///
/// Unlike [`wait`] it does not poll first: the caller has drained link and sockets. The link must
/// be TCP, whose descriptor becomes readable by itself. It is not armed, which saves a system call.
///
/// # Errors
/// If the system can't watch their descriptors.
pub fn wait_with_datagrams<L: Link>(
    link: &mut L,
    socket: &mut DatagramSocket,
    multicast: Option<&mut DatagramSocket>,
    timeout: Duration,
) -> Result<WakeSources, OsError> {
    let mut sockets = [Some(socket), multicast];
    let mut woken = WakeSources { link: false, datagrams: false };
    for socket in sockets.iter_mut().flatten() {
        woken.datagrams |= socket.arm() == Armed::Ready;
    }
    let mut is_readable = [false; 2];
    let slept = if woken.datagrams {
        Ok(())
    } else {
        sleep_with_datagrams(link, &sockets, timeout, &mut woken, &mut is_readable)
    };
    for (socket, is_readable) in sockets.iter_mut().flatten().zip(is_readable) {
        socket.disarm(is_readable);
    }
    match slept {
        Ok(()) | Err(Errno::INTR) => Ok(woken),
        Err(error) => Err(error.into()),
    }
}

/// Sleeps for [`wait_with_datagrams`], and notes what woke it.
fn sleep_with_datagrams<L: Link>(
    link: &L,
    sockets: &[Option<&mut DatagramSocket>; 2],
    timeout: Duration,
    woken: &mut WakeSources,
    is_readable: &mut [bool; 2],
) -> Result<(), Errno> {
    let watched =
        |writes: bool| if writes { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN };
    // A link, and of each socket the socket itself and what goes past the network stack.
    let mut fds: [PollFd<'_>; 5] =
        std::array::from_fn(|_| PollFd::from_borrowed_fd(link.as_fd(), PollFlags::empty()));
    fds[0] = PollFd::from_borrowed_fd(link.as_fd(), watched(link.wants_write()));
    let mut count = 1;
    for socket in sockets.iter().flatten() {
        fds[count] = PollFd::from_borrowed_fd(socket.as_fd(), watched(socket.wants_write()));
        count += 1;
    }
    let all_sockets = count;
    for bypass in sockets.iter().flatten().filter_map(|socket| socket.bypass_fd()) {
        fds[count] = PollFd::from_borrowed_fd(bypass, PollFlags::IN);
        count += 1;
    }
    poll(&mut fds[..count], Some(&timespec(timeout)))?;
    let is_ready = |fd: &PollFd<'_>| !fd.revents().is_empty();
    woken.link = is_ready(&fds[0]);
    woken.datagrams = fds[1..count].iter().any(is_ready);
    for (is_readable, fd) in is_readable.iter_mut().zip(&fds[1..all_sockets]) {
        *is_readable = is_ready(fd);
    }
    Ok(())
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
