//! One queue of an interface: an AF_XDP socket, its memory and its four rings.
//!
//! The host's service opens both, and keeps neither. The memory is cut into buffers; each is at any time free, lent to the kernel, or
//! holds a packet that waits for its port or for the wire.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use memmap2::{MmapOptions, MmapRaw};
use rustix::io::Errno;
use rustix::net::sockopt::xdp_mmap_offsets;
use rustix::net::xdp::{
    XDP_PGOFF_RX_RING, XDP_PGOFF_TX_RING, XDP_UMEM_PGOFF_COMPLETION_RING, XDP_UMEM_PGOFF_FILL_RING,
    XdpDesc, XdpDescOptions,
};
use rustix::net::{SendFlags, send};

use crate::shared_ring::{Consumer, Producer};

/// Bytes of a buffer, the kernel's headroom in front of a packet included.
pub const BUFFER_BYTES: u32 = 2048;
/// Packets on their way out, and entries of the rings for them.
pub const SENT_MAX: u32 = 64;
/// Packets that may lie at all queues of an interface together until this process polls them, and at one at least.
const RECEIVED_MAX: u32 = 1024;
const RECEIVED_MIN: u32 = 64;
/// System calls that send what was put down together: the kernel takes 32 packets in one.
const CALLS_MAX: u32 = 4;
/// Packets that may wait for ports.
const HELD_MAX: u32 = 1024;
/// What is put down, lies in the ring, or is on its way.
const SENDING_MAX: u32 = 3 * SENT_MAX;
/// Packets that wait for ports and came by one queue, at least.
const HELD_MIN: u32 = 64;

/// How large a queue is: its interface's packets are shared out among all of them, so that many queues do not take
/// more memory than a few. In all 4.4 MiB, or 256 KiB a queue if there are more than 16.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueSize {
    /// Buffers that the kernel has to receive into, a power of two; entries of the rings for them.
    pub received: u32,
    held: u32,
    sending: u32,
}

impl QueueSize {
    /// Of the queue `number`, of `count`. The first one sends.
    #[must_use]
    pub fn of(number: u32, count: u32) -> Self {
        let received = (RECEIVED_MAX / count.next_power_of_two()).max(RECEIVED_MIN);
        let held = (HELD_MAX / count).max(HELD_MIN);
        Self { received, held, sending: if number == 0 { SENDING_MAX } else { 0 } }
    }

    /// Whether packets leave by it.
    #[must_use]
    pub fn sends(self) -> bool {
        self.sending > 0
    }

    fn buffers(self) -> u32 {
        self.received + self.held + self.sending
    }

    /// Bytes of all its buffers.
    #[must_use]
    pub fn memory_bytes(self) -> usize {
        self.buffers() as usize * BUFFER_BYTES as usize
    }
}

/// A packet in the memory of a queue, to which it must be given back.
pub(crate) struct Packet {
    address: u64,
    len_bytes: u32,
}

/// See the module documentation.
pub(crate) struct Queue {
    /// Buffers that nothing is in. The one given back last, which is still in the cache, is used first.
    free: Vec<u64>,
    size: QueueSize,
    /// Packets received and not given back.
    held: usize,
    /// Buffers that the kernel has to receive into, and received packets not taken yet.
    lent: usize,
    fill: Producer<u64>,
    received: Consumer<XdpDesc>,
    outgoing: Vec<XdpDesc>,
    sent: Option<Producer<XdpDesc>>,
    completed: Consumer<u64>,
    /// Packets lie in the ring that the kernel has not taken.
    has_unsent: bool,
    memory: MmapRaw,
    socket: OwnedFd,
}

// SAFETY: its rings and its memory are this queue's own; they are used through `&mut` alone.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Send for Queue {}

impl Queue {
    /// Takes a socket that a service has opened for a queue of this size, and its memory.
    pub(crate) fn new(socket: OwnedFd, memory: &OwnedFd, size: QueueSize) -> io::Result<Self> {
        let memory = MmapOptions::new().len(size.memory_bytes()).map_raw(memory.as_raw_fd())?;
        let offsets = xdp_mmap_offsets(&socket)?;
        let fill = Producer::map(&socket, XDP_UMEM_PGOFF_FILL_RING, offsets.fr, size.received)?;
        let completed =
            Consumer::map(&socket, XDP_UMEM_PGOFF_COMPLETION_RING, offsets.cr, SENT_MAX)?;
        let received = Consumer::map(&socket, XDP_PGOFF_RX_RING, offsets.rx, size.received)?;
        let sent = size
            .sends()
            .then(|| Producer::map(&socket, XDP_PGOFF_TX_RING, offsets.tx, SENT_MAX))
            .transpose()?;
        let free = (0..size.buffers()).rev().map(|it| u64::from(it * BUFFER_BYTES)).collect();
        let mut queue = Self {
            free,
            size,
            held: 0,
            lent: 0,
            fill,
            received,
            outgoing: Vec::with_capacity(SENT_MAX as usize),
            sent,
            completed,
            has_unsent: false,
            memory,
            socket,
        };
        queue.refill();
        Ok(queue)
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// Takes the next packet that has arrived.
    pub(crate) fn receive(&mut self) -> Option<Packet> {
        let XdpDesc { addr: address, len: len_bytes, .. } = self.received.take()?;
        self.received.release();
        self.lent -= 1;
        self.held += 1;
        Some(Packet { address, len_bytes })
    }

    /// What is in a packet. Empty if the kernel named a place that does not lie in the memory.
    pub(crate) fn bytes(&self, packet: &Packet) -> &[u8] {
        let (start, len_bytes) = (packet.address as usize, packet.len_bytes as usize);
        if start.checked_add(len_bytes).is_none_or(|end| end > self.memory.len()) {
            return &[];
        }
        // SAFETY: the bytes lie in the mapping, checked, and are this packet's until it is given back.
        unsafe { std::slice::from_raw_parts(self.memory.as_ptr().add(start), len_bytes) }
    }

    /// Whether one more packet may wait for its port: the rest of the buffers is for what arrives.
    pub(crate) fn may_hold_more(&self) -> bool {
        self.held < self.size.held as usize
    }

    pub(crate) fn give_back(&mut self, packet: Packet) {
        self.held -= 1;
        self.free.push(buffer_of(packet.address));
    }

    /// Lends the kernel as many buffers to receive into as it had at first, as far as they are there.
    pub(crate) fn refill(&mut self) {
        let spare = self.free.len().saturating_sub(self.size.sending as usize);
        let count = spare.min(self.size.received as usize - self.lent);
        for _ in 0..count {
            let Some(buffer) = self.free.pop() else { break };
            if !self.fill.put(buffer) {
                self.free.push(buffer);
                break;
            }
            self.lent += 1;
        }
        if count > 0 {
            self.fill.publish();
        }
    }

    /// Puts one packet down to be sent with the next [`Queue::flush`]. False if there is no room.
    pub(crate) fn put(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        let len_bytes = headers.len() + payload.len();
        if self.outgoing.len() == SENT_MAX as usize || len_bytes > BUFFER_BYTES as usize {
            return false;
        }
        let Some(buffer) = self.free.pop() else { return false };
        // SAFETY: the buffer lies in the mapping, holds that many bytes, and is nobody else's.
        unsafe {
            let start = self.memory.as_mut_ptr().add(buffer as usize);
            start.copy_from_nonoverlapping(headers.as_ptr(), headers.len());
            start.add(headers.len()).copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
        let options = XdpDescOptions::empty();
        self.outgoing.push(XdpDesc { addr: buffer, len: len_bytes as u32, options });
        true
    }

    /// Sends what was put down. False if the kernel has no room for all of it now.
    pub(crate) fn flush(&mut self) -> bool {
        while let Some(address) = self.completed.take() {
            self.free.push(buffer_of(address));
        }
        self.completed.release();
        let Some(ring) = &mut self.sent else { return true };
        let taken = self.outgoing.iter().take_while(|&&packet| ring.put(packet)).count();
        if taken > 0 {
            ring.publish();
            self.outgoing.drain(..taken);
            self.has_unsent = true;
        }
        let mut calls = 0;
        while self.has_unsent && calls < CALLS_MAX {
            calls += 1;
            self.has_unsent = match send(self.as_fd(), &[], SendFlags::DONTWAIT) {
                // The kernel takes so many packets a call, and says that there are more.
                Err(Errno::AGAIN | Errno::BUSY | Errno::NOBUFS | Errno::INTR) => true,
                // An interface that is down loses packets, as networks do.
                Ok(_) | Err(_) => false,
            };
        }
        !self.has_unsent && self.outgoing.is_empty()
    }
}

/// The buffer in which an address lies.
fn buffer_of(address: u64) -> u64 {
    address & !u64::from(BUFFER_BYTES - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_queues_take_little_more_memory_than_one() {
        let bytes =
            |count| (0..count).map(|it| QueueSize::of(it, count).memory_bytes()).sum::<usize>();
        assert_eq!(bytes(1), (1024 + 1024 + 192) * 2048);
        assert!((1..=16).all(|count| bytes(count) <= bytes(1)), "{:?}", [1, 3, 16].map(bytes));
        assert!(bytes(64) <= 64 * 256 * 1024 + 192 * 2048);
        assert!((1..=64).all(|count| QueueSize::of(0, count).received.is_power_of_two()));
    }
}
