//! Datagrams that the kernel drops at the socket, before a process is woken for them.
//!
//! Owns the filter that drops what does not begin as a frame does, and the count of all that was dropped. The
//! filter is no check: what passes is decoded as if there were none. It keeps strangers' datagrams from waking
//! a process, which would take its core from others for each of them.

use std::net::UdpSocket;
use std::os::fd::AsFd;
use std::sync::{Mutex, PoisonError, Weak};

use tributary_wire::frame::{HEADER_BYTES, MAGIC};

use super::sys::{self, FilterStep};

/// A filter sees a datagram from its UDP header on.
const UDP_HEADER_BYTES: u32 = 8;
/// What a filter returns to keep a datagram as long as it is, and to drop it.
const KEEP: u32 = u32::MAX;
const DROP: u32 = 0;

/// Lets the kernel drop what is shorter than a frame's header or does not begin with the magic. Empty datagrams
/// are dropped, too.
///
/// Does nothing where the kernel has no filters: the process drops the same.
pub(super) fn filter(socket: &UdpSocket) {
    // A filter loads numbers in network order.
    let magic = u32::from_be_bytes(MAGIC);
    let _ = sys::attach_filter(
        socket.as_fd(),
        &[
            FilterStep::load_length(),
            FilterStep::unless_at_least(UDP_HEADER_BYTES + HEADER_BYTES as u32, 3),
            FilterStep::load_word(UDP_HEADER_BYTES),
            FilterStep::unless_equal(magic, 1),
            FilterStep::end(KEEP),
            FilterStep::end(DROP),
        ],
    );
}

/// Counts what the kernel has dropped at a socket: what does not begin as a frame, what has a wrong checksum, and
/// what came while the socket's buffer was full. Can be asked from any thread, also when the socket is gone.
#[derive(Debug)]
pub struct Unqueued {
    socket: Weak<UdpSocket>,
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
    pub(super) fn of(socket: Weak<UdpSocket>) -> Self {
        Self { socket, counted: Mutex::default() }
    }

    /// How many since the socket was made. Exact if asked once in 2^32 datagrams, which takes an hour at least.
    pub fn count(&self) -> u64 {
        let mut counted = self.counted.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = self.socket.upgrade()
            && let Ok(now) = sys::dropped(socket.as_fd())
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
