//! Counts the datagrams that the kernel drops at a socket, before a process is woken for them.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError, Weak};

use super::sys;
use tributary_inheritance::Uninherited;

/// Counts what the kernel has dropped at a socket: what the socket's filter did not let pass, what has a wrong checksum,
/// and what came while the socket's buffer was full. Can be asked from any thread, also when the socket is gone.
#[derive(Debug)]
pub struct Unqueued {
    socket: Weak<Uninherited<UdpSocket>>,
    counted: Mutex<Counted>,
}

/// The kernel's own count has 32 bits.
#[derive(Debug, Default)]
struct Counted {
    last: u32,
    total: u64,
}

impl Counted {
    fn note(&mut self, now: u32) {
        self.total += u64::from(now.wrapping_sub(self.last));
        self.last = now;
    }
}

impl Unqueued {
    pub(super) fn of(socket: Weak<Uninherited<UdpSocket>>) -> Self {
        Self { socket, counted: Mutex::default() }
    }

    /// How many since the socket was made. Exact if asked once in 2^32 datagrams, which takes an hour at least.
    pub fn count(&self) -> u64 {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = self.socket.upgrade()
            && let Ok(now) = sys::read_drops(socket.as_fd())
        {
            counted.note(now);
        }
        counted.total
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_goes_on_when_the_kernels_begins_anew() {
        let mut counted = Counted::default();
        for now in [5, u32::MAX - 1, 3] {
            counted.note(now);
        }
        assert_eq!(counted.total, u64::from(u32::MAX) + 4);
    }
}
