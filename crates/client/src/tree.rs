//! A leader's place in an aggregation tree: the endpoint machine over its link.

mod datagrams;
mod enter;
#[cfg(test)]
mod tests;
mod traffic;

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::{Endpoint, Event, OperationSpec, StartError};
use tributary_protocol::{Reach, Time};
use tributary_transport::{Beside, Link, Sent, wait, wait_beside};
use tributary_wire::OperationNumber;
use tributary_wire::frame::{Abort, AbortReason, STREAM_BYTES_MAX};

use crate::report::Tally;
use datagrams::Datagrams;
pub(crate) use enter::Approach;
use traffic::Round;
use tributary_shm_collectives::waiting::Waiter;

/// How long a farewell may take to leave this process.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);
/// A member of a group, connected.
pub(crate) struct TreeMember {
    endpoint: Endpoint,
    link: Box<dyn Link>,
    datagrams: Option<Datagrams>,
    /// What carries this member's data, for the report.
    carrier: &'static str,
    /// What the next round looks at.
    round: Round,
    /// Rounds that look around until the link is looked at again.
    link_due_in: u32,
    /// Where the endpoint's time starts.
    clock: Instant,
    running: Option<Running>,
    /// The operation at the endpoint that carries what runs.
    number: Option<OperationNumber>,
    /// Shortest vector that goes as a stream; none if the group may not stream.
    stream_min_bytes: Option<u64>,
    /// The link has failed: nothing more can be said.
    is_gone: bool,
    /// Where it is told how many results came by multicast.
    tally: Option<Arc<Tally>>,
    /// How many it was told of.
    multicasts_told: u64,
    /// Results of reductions go to a process outside the group besides.
    has_outsider: bool,
}

/// The operation under way, and its buffers.
///
/// A vector longer than a stream may be goes as several, one after the other.
struct Running {
    spec: OperationSpec,
    is_stream: bool,
    source: *const u8,
    target: *mut u8,
    len_bytes: usize,
    /// Bytes of the vector that may be sent by now.
    ready_bytes: usize,
    /// The part of the vector that travels now.
    piece: Range<usize>,
}

impl Running {
    /// Elements that travel next, from `first_byte` on.
    fn elements_from(&self, first_byte: usize) -> u64 {
        let element_bytes = self.spec.datatype.size_bytes() as u64;
        let left = self.spec.elements - first_byte as u64 / element_bytes;
        if self.is_stream { left.min(STREAM_BYTES_MAX / element_bytes) } else { left }
    }
}

// SAFETY: the pointers are followed only while an operation runs, whose buffers its caller has
// promised to every thread (`Communicator::run` and `start`).
unsafe impl Send for TreeMember {}

impl TreeMember {
    /// Starts an operation on buffers of `len_bytes` each, where the specification uses them.
    ///
    /// # Safety
    /// The buffers stay valid, and nobody else uses them, until [`TreeMember::poll`] has said that
    /// the operation is over.
    pub(crate) unsafe fn start(
        &mut self,
        spec: OperationSpec,
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) -> Result<(), Abort> {
        // The same at all members: the operation's length, the group's terms, one job's settings.
        let is_for_outsider = self.has_outsider && spec.operator.is_reduction();
        let spec = match is_for_outsider {
            true => OperationSpec { target: spec.target.with_outsider(), ..spec },
            false => spec,
        };
        let is_stream = self.stream_min_bytes.is_some_and(|least| len_bytes as u64 >= least);
        let ready_bytes = len_bytes;
        let piece = 0..0;
        let running = Running { spec, is_stream, source, target, len_bytes, ready_bytes, piece };
        self.start_piece(running)
    }

    /// Starts to stream a vector of which nothing may be sent yet; [`TreeMember::make_ready`] says
    /// what may.
    ///
    /// # Safety
    /// As [`TreeMember::start`], except that the source may still change where it isn't ready.
    pub(crate) unsafe fn start_held(
        &mut self,
        spec: OperationSpec,
        source: *const u8,
        target: *mut u8,
        len_bytes: usize,
    ) -> Result<(), Abort> {
        let piece = 0..0;
        let is_stream = true;
        let ready_bytes = 0;
        let running = Running { spec, is_stream, source, target, len_bytes, ready_bytes, piece };
        self.start_piece(running)
    }

    /// The first `ready_bytes` of the vector may be sent.
    pub(crate) fn make_ready(&mut self, ready_bytes: usize) {
        let (Some(running), Some(number)) = (&mut self.running, self.number) else { return };
        running.ready_bytes = ready_bytes;
        self.round = Round::Around;
        self.endpoint.make_ready(number, running.ready_bytes.saturating_sub(running.piece.start));
    }

    /// How much of the result is in its place, from the first byte on without a gap.
    pub(crate) fn received_bytes(&self) -> usize {
        let (Some(running), Some(number)) = (&self.running, self.number) else { return 0 };
        running.piece.start + self.endpoint.received_bytes(number).unwrap_or(0)
    }

    /// Starts the part of the vector behind the one that has travelled.
    fn start_piece(&mut self, mut running: Running) -> Result<(), Abort> {
        debug_assert!(self.running.is_none(), "operations of a communicator run one by one");
        let first = running.piece.end;
        let elements = running.elements_from(first);
        let end = first + elements as usize * running.spec.datatype.size_bytes();
        running.piece = first..end;
        let spec = OperationSpec { elements, ..running.spec };
        let started = if running.is_stream {
            self.endpoint.start_stream(spec, running.ready_bytes.saturating_sub(first))
        } else {
            self.endpoint.start(spec)
        };
        match started {
            Ok(number) => {
                self.number = Some(number);
                self.running = Some(running);
                self.round = Round::First;
                Ok(())
            }
            Err(StartError::Failed(abort)) => Err(abort),
            Err(other) => unreachable!("checked before the operation came here: {other}"),
        }
    }

    /// Goes as far as it can without waiting. `true` once the operation is complete.
    pub(crate) fn poll(&mut self) -> Result<bool, Abort> {
        self.pump();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Completed(_) => match self.running.take() {
                    Some(running) if running.piece.end < running.len_bytes => {
                        self.start_piece(running)?;
                        self.pump();
                    }
                    _ => {
                        self.count_multicasts();
                        return Ok(true);
                    }
                },
                Event::Failed(abort) => {
                    self.running = None;
                    return Err(abort);
                }
                Event::Datagrams(reach) => self.on_reach(reach),
                Event::Joined | Event::DatagramPeer(_) | Event::Multicast(_) => {}
            }
        }
        Ok(false)
    }

    /// What carries this member's data now: `shm`, `tcp` or `udp`.
    pub(crate) fn carrier(&self) -> &'static str {
        self.carrier
    }

    /// Lets `tally` know how many results come by multicast.
    pub(crate) fn report_multicasts_to(&mut self, tally: Arc<Tally>) {
        self.tally = Some(tally);
    }

    fn count_multicasts(&mut self) {
        if let (Some(tally), true) = (&self.tally, self.has_open_datagrams()) {
            let results = self.endpoint.multicast_results();
            tally.add_multicast_results(results - self.multicasts_told);
            self.multicasts_told = results;
        }
    }

    fn on_datagram_peer(&mut self, port: u16) {
        let Some(datagrams) = &mut self.datagrams else { return };
        datagrams.peer.set_port(port);
        if datagrams.socket.connect(datagrams.peer).is_err() {
            // Then no probe is answered, and the link carries all.
            self.datagrams = None;
        }
    }

    fn on_reach(&mut self, reach: Reach) {
        let is_open = reach == Reach::Open;
        self.carrier = if is_open { "udp" } else { "tcp" };
        match &mut self.datagrams {
            Some(datagrams) if is_open => datagrams.is_open = true,
            _ => self.datagrams = None,
        }
    }

    /// Whether all of the operation is with the node, which goes on alone.
    pub(crate) fn is_all_sent(&mut self) -> bool {
        let is_last = self.running.as_ref().is_none_or(|it| it.piece.end == it.len_bytes);
        is_last && self.endpoint.is_all_sent() && matches!(self.link.flush(), Ok(Sent::Taken))
    }

    /// Lets a little time pass: yields until a look at what is expected finds something, or sleeps
    /// for `nap_max` at most.
    pub(crate) fn pause(&mut self, waiter: &mut Waiter, nap_max: Duration) {
        if waiter.yields_next() {
            waiter.yield_while(|| self.glances_in_vain());
        } else {
            waiter.pause(|time| self.sleep(time.min(nap_max)));
        }
    }

    /// Sleeps until the link may have something, or for `time`.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let due = self.endpoint.poll_timeout();
        let time = due.map_or(time, |due| {
            time.min(Duration::from_nanos(due.since_ns(time_since(self.clock))))
        });
        if time.is_zero() {
            return;
        }
        self.round = Round::Around;
        let link = std::slice::from_mut(&mut self.link);
        // A wait that fails is a link that fails, and the next poll says so.
        match &mut self.datagrams {
            Some(datagrams) => {
                let woken =
                    wait_beside(&mut self.link, &datagrams.socket, datagrams.ear.as_ref(), time);
                let woken = woken.unwrap_or(Beside { link: true, datagrams: true });
                if woken.link {
                    self.link_due_in = 0;
                }
                if woken.datagrams {
                    datagrams.is_other_next = true;
                }
            }
            None => {
                let _ = wait(link, Duration::ZERO, Some(time));
            }
        }
    }

    /// Tells the others that this host can't go on.
    pub(crate) fn abort(&mut self, reason: AbortReason) {
        self.running = None;
        self.endpoint.abort(reason);
        self.say_farewell();
    }

    /// Leaves the group.
    pub(crate) fn leave(&mut self) {
        self.endpoint.leave();
        self.say_farewell();
    }

    fn say_farewell(&mut self) {
        let deadline = Instant::now() + FAREWELL_TIMEOUT;
        self.round = Round::Around;
        loop {
            self.pump();
            let is_flushed = matches!(self.link.flush(), Ok(Sent::Taken) | Err(_));
            let is_said = self.endpoint.is_drained() && is_flushed;
            if is_said || self.is_gone || Instant::now() >= deadline {
                return;
            }
            self.sleep(Duration::from_millis(5));
        }
    }
}

fn time_since(clock: Instant) -> Time {
    Time(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
