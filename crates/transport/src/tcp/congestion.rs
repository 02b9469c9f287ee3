//! The congestion control of links.
//!
//! A link carries bursts of segments that its group bounds (outstanding operations, chunks of a
//! window), and the next burst waits for the last. Algorithms that pace, such as BBR, spread a
//! burst over timers: 8 hosts of a lab on two cores reduced 1 MiB in 7.7 ms over a ring of paced
//! links, and in 2.8 ms over unpaced ones. So if the system's default paces, a link takes the first
//! permitted algorithm of a list of unpaced ones. Any other default stays.

use std::os::fd::BorrowedFd;

use rustix::io::Errno;
use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

/// Algorithms that pace what they send (tcp(7), `tcp_available_congestion_control`).
const PACING: [&str; 3] = ["bbr", "bbr2", "bbr3"];
/// Their replacements, best first. Every kernel has the last one and permits it to everybody.
const UNPACED: [&str; 2] = ["cubic", "reno"];

/// Makes a socket send its bursts at once. The socket must not be connected yet, because a
/// connection that has begun to pace would continue. Connections inherit the setting of a listening
/// socket.
pub(super) fn send_at_once(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    let usual = tcp_congestion(socket)?;
    if !PACING.contains(&usual.as_str()) {
        return Ok(());
    }
    let mut refused = Errno::PERM;
    for name in UNPACED {
        match set_tcp_congestion(socket, name) {
            Ok(()) => return Ok(()),
            // Not permitted to this user, or not part of this kernel.
            Err(error @ (Errno::PERM | Errno::NOENT)) => refused = error,
            Err(error) => return Err(error),
        }
    }
    Err(refused)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::os::fd::AsFd;

    use rustix::net::sockopt::{set_tcp_congestion, tcp_congestion};

    use super::*;
    use crate::{Listener, TcpAcceptor, TcpOptions, connect_tcp};

    #[test]
    fn no_link_paces() {
        let options = TcpOptions::new(64).unwrap();
        let mut acceptor = TcpAcceptor::bind(([127, 0, 0, 1], 0).into(), options).unwrap();
        let timeout = std::time::Duration::from_secs(10);
        let near = connect_tcp(acceptor.address().unwrap(), options, timeout).unwrap();
        let far = acceptor.accept(std::time::Instant::now()).unwrap().unwrap();
        for link in [&near, &far] {
            let used = tcp_congestion(link.as_fd()).unwrap();
            assert!(!PACING.contains(&used.as_str()), "{used}");
        }
    }

    #[test]
    fn a_choice_that_does_not_pace_stands() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        set_tcp_congestion(&socket, "reno").unwrap();
        send_at_once(socket.as_fd()).unwrap();
        assert_eq!(tcp_congestion(&socket).unwrap(), "reno");
    }
}
