//! How long the loop goes round, what it asks in a round, and how it sleeps.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use mio::{Events, Token};
use tributary_protocol::node::PortId;
use tributary_transport::{Armed, Listener};

use super::{DATAGRAMS, DataLoop, FIRST_PORT, SHM_DOOR, TCP_DOOR, WAKER};
use crate::node::links::{AnyLink, Stage};
use crate::node::refusals::Reason;

/// Rounds over the links between two looks at the kernel's events and the clock.
const ROUNDS_PER_KERNEL_POLL: u32 = 32;

/// While frames come by datagram, the socket is asked itself in every round: one system call that
/// brings them, in the place of one that says that they are there. The kernel is asked about the
/// others, and the clock looked at, once in so many rounds.
const ROUNDS_PER_LOOK_UP_LED: u32 = 4;

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
            // A round over sockets costs system calls anyway; one over rings costs next to nothing.
            let has_sockets = self.links.tcp_count() > 0 || self.datagrams.is_some();
            let looks_up = !self.datagrams_lead || rounds.is_multiple_of(ROUNDS_PER_LOOK_UP_LED);
            let is_poll_due = (!worked && has_sockets && looks_up)
                || rounds.is_multiple_of(ROUNDS_PER_KERNEL_POLL);
            if is_poll_due {
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
                // Datagrams are taken until there are none: a look right after finds nothing.
                if !self.datagrams_lead || self.datagrams_hot {
                    continue;
                }
            } else if is_poll_due {
                let now = Instant::now();
                if now - *idle_since.get_or_insert(now) >= self.spin {
                    return Ok(());
                }
            }
            if has_sockets || is_poll_due {
                // Whoever this loop waits for may be waiting for this very core.
                thread::yield_now();
            } else {
                std::hint::spin_loop();
            }
        }
    }

    /// Goes once over everything that frames come from. True if any of it had something.
    fn serve_sockets(&mut self) -> bool {
        // Where the loop sleeps at once, the kernel has said whether there is anything.
        self.datagrams_hot |= self.datagrams_lead && !self.spin.is_zero();
        let by_datagram = self.serve_datagrams();
        let by_link = self.serve_links();
        if by_datagram || by_link {
            self.datagrams_lead = by_datagram;
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

    /// Prepares every link for sleep; false, with all of them awake, if one has something already.
    fn arm_links(&mut self) -> bool {
        if self.datagrams_hot {
            return false;
        }
        for port in 0..self.links.ports_end() {
            let Some(entry) = self.links.entry(PortId(port)) else { continue };
            let is_ready = match &mut entry.link {
                // Watched for edges, and drained since the last one: nothing to prepare.
                AnyLink::Tcp(_) => entry.is_hot,
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
            if !entry.is_hot {
                entry.link.disarm();
            }
        }
    }

    /// Takes what the kernel has to say, waiting for it at most `timeout`. True if it was anything.
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
                TCP_DOOR | SHM_DOOR => self.accept_at = Some(self.clock),
                DATAGRAMS => {
                    self.datagrams_hot |= event.is_readable() || event.is_error();
                    if event.is_writable() {
                        self.on_datagram_room();
                    }
                }
                Token(token) => {
                    if let Some(entry) = self.links.entry(PortId((token - FIRST_PORT) as u32)) {
                        entry.is_hot = true;
                        // The edge is spent, whether or not this loop was asleep: the link has to
                        // take note of what is on its descriptor, above all that the peer is gone.
                        entry.link.disarm();
                    }
                }
            }
        }
        Ok(!events.is_empty())
    }

    /// Does what is due. True if it was anything.
    pub(super) fn serve_deadlines(&mut self) -> bool {
        let now = Instant::now();
        let mut worked = false;
        let doors_due = self.shm.as_ref().and_then(Listener::deadline).is_some_and(|at| at <= now);
        if doors_due || self.accept_at.is_some_and(|at| at <= now) {
            worked |= self.accept(now);
        }
        while let Some((port, stage)) = self.links.pop_overdue(now) {
            if stage == Stage::Unjoined {
                self.tally.refuse(Reason::NeverJoined);
                self.log.refused(now, Reason::NeverJoined, &"nobody joined a group over the link");
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

    fn next_deadline(&mut self) -> Option<Instant> {
        let machine =
            self.machine.poll_timeout().map(|due| self.clock + Duration::from_nanos(due.0));
        let doors = self.shm.as_ref().and_then(Listener::deadline);
        let links = self.links.next_deadline();
        [machine, doors, links, self.removals.next_due(), self.accept_at]
            .into_iter()
            .flatten()
            .min()
    }
}
