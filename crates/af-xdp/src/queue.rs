//! One queue of an interface: an AF_XDP socket, its memory and its four rings.

use std::error::Error;
use std::os::fd::{BorrowedFd, RawFd};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use xdp::nic::NicIndex;
use xdp::slab::{HeapSlab, Slab};
use xdp::socket::{XdpSocket, XdpSocketBuilder};
use xdp::umem::{FrameSize, UmemCfgBuilder};
use xdp::{Packet, Umem};
use xdp::{RingConfigBuilder, WakableRings};

use crate::Mode;

/// Packets that may lie at all queues of an interface together until this process polls them, and at one at least.
const RECEIVED_MAX: u32 = 1024;
const RECEIVED_MIN: u32 = 64;
/// Packets on their way out.
const SENT_MAX: u32 = 64;
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
pub(crate) struct Share {
    received: u32,
    held: u32,
    sending: u32,
}

impl Share {
    /// Of the queue `number`, of `count`. The first one sends.
    pub(crate) fn of(number: u32, count: u32) -> Self {
        let received = (RECEIVED_MAX / count.next_power_of_two()).max(RECEIVED_MIN);
        let held = (HELD_MAX / count).max(HELD_MIN);
        Self { received, held, sending: if number == 0 { SENDING_MAX } else { 0 } }
    }

    /// Buffers of 2 KiB.
    fn buffers(self) -> u32 {
        self.received + self.held + self.sending
    }
}

/// See the module documentation.
pub(crate) struct Queue {
    rings: WakableRings,
    outgoing: HeapSlab,
    share: Share,
    /// Packets received and not given back.
    held: usize,
    /// Buffers that the kernel has to receive into, and received packets not taken yet.
    lent: usize,
    /// Packets lie in the ring that the kernel has not taken.
    has_unsent: bool,
    socket: XdpSocket,
    // Last: the rings name places in it.
    umem: Umem,
}

// SAFETY: its rings and its memory are this queue's own; they are used through `&mut` alone.
#[allow(unsafe_code, reason = "the trait is unsafe to implement")]
unsafe impl Send for Queue {}

impl Queue {
    pub(crate) fn open(
        interface: u32,
        queue: u32,
        share: Share,
        mode: Mode,
    ) -> Result<Self, Box<dyn Error + 'static>> {
        let memory = UmemCfgBuilder {
            frame_size: FrameSize::TwoK,
            frame_count: share.buffers(),
            ..UmemCfgBuilder::default()
        };
        let mut umem = Umem::map(memory.build()?)?;
        let config = RingConfigBuilder {
            rx_count: share.received,
            fill_count: share.received,
            tx_count: if share.sending > 0 { SENT_MAX } else { 0 },
            completion_count: SENT_MAX,
        };
        let mut builder = XdpSocketBuilder::new()?;
        let (mut rings, mut flags) = builder.build_wakable_rings(&umem, config.build()?)?;
        // SAFETY: the memory is dropped last, behind the socket.
        let lent = unsafe { rings.fill_ring.enqueue(&mut umem, share.received as usize, false)? };
        if mode == Mode::Generic {
            flags.force_copy();
        }
        let socket = builder.bind(NicIndex::new(interface), queue, flags)?;
        let outgoing = HeapSlab::with_capacity(SENT_MAX as usize);
        Ok(Self { rings, outgoing, share, held: 0, lent, has_unsent: false, socket, umem })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        self.socket.raw_fd()
    }

    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the socket lives as long as the borrow.
        unsafe { BorrowedFd::borrow_raw(self.socket.raw_fd()) }
    }

    /// Takes what has arrived. Every packet must be given back to this queue.
    pub(crate) fn receive(&mut self, packets: &mut impl Slab) -> usize {
        let Some(ring) = &mut self.rings.rx_ring else { return 0 };
        // SAFETY: who holds packets holds this queue, and drops them first.
        let count = unsafe { ring.recv(&self.umem, packets) };
        self.lent -= count;
        self.held += count;
        count
    }

    /// Whether one more packet may wait for its port, besides those that have just been received: the rest of the
    /// buffers is for what arrives.
    pub(crate) fn may_hold_more(&self, just_received: usize) -> bool {
        self.held < self.share.held as usize + just_received
    }

    pub(crate) fn give_back(&mut self, packet: Packet) {
        self.held -= 1;
        self.umem.free_packet(packet);
    }

    /// Lends the kernel as many buffers to receive into as it had at first, as far as they are there. The one given
    /// back last, which is still in the cache, is lent first.
    pub(crate) fn refill(&mut self) {
        let spare = self.umem.allocatable().saturating_sub(self.share.sending as usize);
        let count = spare.min(self.share.received as usize - self.lent);
        if count > 0 {
            // SAFETY: as in `open`. Nothing is told to the kernel, so nothing can fail.
            let lent = unsafe { self.rings.fill_ring.enqueue(&mut self.umem, count, false) };
            self.lent += lent.unwrap_or(0);
        }
    }

    /// Puts one packet down to be sent with the next [`Queue::flush`]. False if there is no room.
    pub(crate) fn put(&mut self, headers: &[u8], payload: &[u8]) -> bool {
        if self.outgoing.available() == 0 {
            return false;
        }
        // SAFETY: as in `receive`.
        let Some(mut packet) = (unsafe { self.umem.alloc() }) else { return false };
        if packet.append(headers).and_then(|()| packet.append(payload)).is_err() {
            self.umem.free_packet(packet);
            return false;
        }
        self.outgoing.push_front(packet);
        true
    }

    /// Sends what was put down. False if the kernel has no room for all of it now.
    pub(crate) fn flush(&mut self) -> bool {
        self.rings.completion_ring.dequeue(&mut self.umem, SENT_MAX as usize);
        let Some(ring) = &mut self.rings.tx_ring else { return true };
        if !self.outgoing.is_empty() {
            // SAFETY: as in `open`.
            let taken = unsafe { ring.send(&mut self.outgoing, false) };
            self.has_unsent |= taken.is_ok_and(|taken| taken > 0);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_queues_take_little_more_memory_than_one() {
        let bytes = |count| (0..count).map(|it| Share::of(it, count).buffers() * 2048).sum::<u32>();
        assert_eq!(bytes(1), (1024 + 1024 + 192) * 2048);
        assert!((1..=16).all(|count| bytes(count) <= bytes(1)), "{:?}", [1, 3, 16].map(bytes));
        assert!(bytes(64) <= 64 * 256 * 1024 + 192 * 2048);
        assert!((1..=64).all(|count| Share::of(0, count).received.is_power_of_two()));
    }
}
