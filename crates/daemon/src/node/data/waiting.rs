//! The loop's rounds: how long it polls, what it polls in a round, and how it sleeps.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Token};
use tributary_protocol::node::PortId;
use tributary_transport::{Armed, Listener};

use super::{DATAGRAMS, DataLoop, FIRST_PORT, SHM_LISTENER, TCP_LISTENER, WAKER};
use crate::node::links::{AnyLink, Stage};
use crate::node::refusals::Reason;

/// Rounds over the links between two polls of the kernel and the clock.
const ROUNDS_PER_KERNEL_POLL: u32 = 32;

/// While frames come by datagram, every round receives from the socket directly: that takes one
/// system call, where asking the kernel first would take two. The kernel's other events and the
/// clock are polled once in so many rounds.
const ROUNDS_PER_KERNEL_POLL_WITH_DATAGRAMS: u32 = 4;

/// Rounds over the links between two updates of the counters that others read.
const ROUNDS_PER_PUBLISH: u32 = 4096;

impl DataLoop {
    /// Serves links, connectors and orders until nothing has happened for the spin time.
    pub(super) fn work_until_idle(&mut self, events: &mut Events) -> io::Result<()> {
        let mut idle_since: Option<Instant> = None;
        let mut rounds = 0_u32;
        loop {
            rounds = rounds.wrapping_add(1);
            let mut worked = self.serve_sockets();
            if !worked && self.spin.is_zero() {
                return Ok(());
            }
            // A round over sockets costs system calls anyway; one over rings costs almost nothing.
            let has_sockets = self.links.tcp_count() > 0 || self.datagrams.is_some();
            let may_poll_kernel = !self.datagrams_active
                || rounds.is_multiple_of(ROUNDS_PER_KERNEL_POLL_WITH_DATAGRAMS);
            let is_kernel_poll_due = (!worked && has_sockets && may_poll_kernel)
                || rounds.is_multiple_of(ROUNDS_PER_KERNEL_POLL);
            if is_kernel_poll_due {
                worked |= self.kernel_events(events, Some(Duration::ZERO))?;
                worked |= self.serve_deadlines();
            }
            if rounds.is_multiple_of(ROUNDS_PER_PUBLISH) {
                self.publish();
                if self.shutdown.is_requested() {
                    return Ok(());
                }
            }
            if worked {
                idle_since = None;
                // All datagrams have been handled, so a poll right after finds nothing.
                if !self.datagrams_active || self.datagrams_signalled {
                    continue;
                }
            } else if is_kernel_poll_due {
                let now = Instant::now();
                if now - *idle_since.get_or_insert(now) >= self.spin {
                    return Ok(());
                }
            }
            if has_sockets || is_kernel_poll_due {
                // The peer that this loop waits for may need this core.
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Serves datagrams and links once. True if there was anything.
    fn serve_sockets(&mut self) -> bool {
        // A loop that sleeps at once gets the kernel's signal instead.
        self.datagrams_signalled |= self.datagrams_active && !self.spin.is_zero();
        let by_datagram = self.serve_datagrams();
        let by_link = self.serve_links();
        if by_datagram || by_link {
            self.datagrams_active = by_datagram;
        }
        by_datagram || by_link
    }

    /// Sleeps until something happens, or `limit`, or the next deadline.
    pub(super) fn sleep(&mut self, events: &mut Events, limit: Option<Instant>) -> io::Result<()> {
        let now = Instant::now();
        let deadline = [self.next_deadline(), limit].into_iter().flatten().min();
        let left = deadline.map(|at| at.saturating_duration_since(now));
        if left == Some(Duration::ZERO) || !self.arm_links() {
            return Ok(());
        }
        let outcome = self.kernel_events(events, left);
        self.disarm_links();
        outcome.map(drop)
    }

    /// Prepares every link for sleep. False, with all links disarmed, if one has something already.
    fn arm_links(&mut self) -> bool {
        if self.datagrams_signalled {
            return false;
        }
        for port in 0..self.links.ports_end() {
            let Some(entry) = self.links.entry(PortId(port)) else { continue };
            let is_ready = match &mut entry.link {
                // Edge-triggered, and drained since the last edge: nothing to prepare.
                AnyLink::Tcp(_) => entry.is_signalled,
                AnyLink::Shm(_) => entry.link.arm() == Armed::Ready,
            };
            if is_ready {
                self.disarm_links();
                return false;
            }
        }
        true
    }

    fn disarm_links(&mut self) {
        for port in 0..self.links.ports_end() {
            let Some(entry) = self.links.entry(PortId(port)) else { continue };
            // The others were disarmed when their descriptors woke the loop.
            if !entry.is_signalled {
                entry.link.disarm();
            }
        }
    }

    /// Handles the kernel's events, waiting for them at most `timeout`. True if there were any.
    fn kernel_events(
        &mut self,
        events: &mut Events,
        timeout: Option<Duration>,
    ) -> io::Result<bool> {
        match self.poll.poll(events, timeout) {
            Ok(()) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => return Ok(false),
            Err(error) => return Err(error),
        }
        for event in events.iter() {
            match event.token() {
                WAKER => self.take_commands(),
                TCP_LISTENER | SHM_LISTENER => self.accept_at = Some(self.accept_not_before),
                DATAGRAMS => {
                    self.datagrams_signalled |= event.is_readable() || event.is_error();
                    if event.is_writable() {
                        self.on_datagram_room();
                    }
                }
                Token(token) => {
                    if let Some(entry) = self.links.entry(PortId((token - FIRST_PORT) as u32)) {
                        entry.is_signalled = true;
                        // The edge will not be reported again. So the link reads its descriptor
                        // now, above all to notice that the peer is gone.
                        entry.link.disarm();
                    }
                }
            }
        }
        Ok(!events.is_empty())
    }

    /// Handles deadlines that have passed. True if there were any.
    pub(super) fn serve_deadlines(&mut self) -> bool {
        let now = Instant::now();
        let mut worked = false;
        let handshake_due = self.handshake_deadline().is_some_and(|at| at <= now);
        if handshake_due || self.accept_at.is_some_and(|at| at <= now) {
            worked |= self.accept(now);
        }
        while let Some((port, stage)) = self.links.pop_overdue(now) {
            if stage == Stage::Unjoined {
                self.counters.refuse(Reason::NeverJoined);
                Reason::NeverJoined.log(&"nobody joined a group over the link");
            }
            self.close(port);
            worked = true;
        }
        worked |= self.remove_due(now);
        let time = self.time(now);
        if self.machine.poll_timeout().is_some_and(|due| due <= time) {
            self.machine.handle_timeout(time);
            worked = true;
        }
        self.drain();
        worked
    }

    /// When a connector is next given up that has not greeted.
    fn handshake_deadline(&self) -> Option<Instant> {
        let deadline = self.shm.as_ref().and_then(Listener::deadline);
        deadline.map(|at| at.max(self.accept_not_before))
    }

    fn next_deadline(&mut self) -> Option<Instant> {
        let machine =
            self.machine.poll_timeout().map(|due| self.clock + Duration::from_nanos(due.0));
        let handshakes = self.handshake_deadline();
        let links = self.links.next_deadline();
        [machine, handshakes, links, self.removals.next_due(), self.accept_at]
            .into_iter()
            .flatten()
            .min()
    }
}
