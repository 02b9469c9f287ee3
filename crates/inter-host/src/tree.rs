//! A leader's place in an aggregation tree: the endpoint machine over its link.

mod datagrams;
mod enter;
mod retained;
mod round;
mod running;
pub(crate) mod suspects;
#[cfg(test)]
mod tests;
mod traffic;

use std::borrow::Cow;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_algorithms::Collective;
use tributary_protocol::endpoint::{
    Endpoint, Event, OperationSpec, Patience, ShortVectors, StartError,
};
use tributary_protocol::failover::{Cut, Standing};
use tributary_protocol::{Reachability, Time};
use tributary_transport::{Link, Sent, WakeSources, wait, wait_with_datagrams};
use tributary_wire::frame::{Abort, AbortReason, Target};
use tributary_wire::{EndpointId, OperationNumber, Operator};

use crate::operation::{InterHost, InterHostOperation};
use datagrams::Datagrams;
pub use enter::{Approach, EnterError};
pub(crate) use retained::Retained;
use round::Round;
pub(crate) use running::Running;
use tributary_report::Counters;

/// How long a graceful close may take to leave this process.
const GRACE_TIMEOUT: Duration = Duration::from_millis(500);
/// The same where the aggregator may not be there any more: the program waits.
const CUT_OFF_TIMEOUT: Duration = Duration::from_millis(10);

/// Pauses between two looks whether the aggregator's kernel has all: from less than a round trip on.
const DELIVERY_NAP_MIN: Duration = Duration::from_micros(20);
const DELIVERY_NAP_MAX: Duration = Duration::from_millis(5);

/// A member of a group, connected.
pub struct TreeMember {
    endpoint: Endpoint,
    link: Box<dyn Link>,
    /// Its aggregator's, for people and for telling aggregators apart.
    address: String,
    datagrams: Option<Datagrams>,
    /// This member's host.
    host: u32,
    /// Endpoint number of each host's leader in the group.
    endpoints: Vec<EndpointId>,
    /// What carries this member's data, for the report.
    carrier: &'static str,
    /// What the next round polls.
    round: Round,
    /// Full rounds until the link is polled again.
    link_due_in: u32,
    /// Where the endpoint's time starts.
    clock: Instant,
    running: Option<Running>,
    /// The operation at the endpoint that carries what runs.
    number: Option<OperationNumber>,
    /// How its vector is cut.
    cut: Option<Cut>,
    /// What is kept for others; none if nobody would ever ask.
    retained: Option<Retained>,
    /// Shortest vector that goes as a stream; none if the group may not stream.
    stream_min_bytes: Option<u64>,
    /// The link has failed: nothing more can be said.
    is_gone: bool,
    /// Where it is told how many results came by multicast.
    counters: Option<Arc<Counters>>,
    /// Results of reductions go to an external receiver besides.
    has_external_receiver: bool,
    /// How short vectors are cut where no packets are lost.
    short_vectors: Option<ShortVectors>,
}

// SAFETY: the pointers are followed only while an operation runs, whose buffers its caller has
// promised to every thread (`Communicator::run` and `start`).
unsafe impl Send for TreeMember {}

/// Where a member stood when it was cut off from its tree.
pub(crate) struct CutOff {
    pub(crate) standing: Standing,
    /// What it had not completed; its piece is empty if nothing of that was started.
    pub(crate) running: Option<Running>,
    /// How the piece that travelled was cut, if one was.
    pub(crate) cut: Option<Cut>,
    pub(crate) retained: Retained,
}

impl TreeMember {
    /// Keeps of every operation what others may lack when the tree is lost.
    pub(crate) fn retain_results(&mut self) {
        self.retained = Some(Retained::new());
    }

    /// Starts to stream a vector of which the first `ready_bytes` may be sent, and the first `first` have
    /// arrived already; [`TreeMember::make_ready`] says when more may be.
    ///
    /// # Safety
    /// As [`InterHost::start`], except that the source may still change where it isn't ready.
    pub(crate) unsafe fn start_stream(
        &mut self,
        operation: &InterHostOperation,
        first: usize,
        ready_bytes: usize,
    ) -> Result<(), Abort> {
        let spec = self.spec(operation);
        let running = Running::new(operation, spec, first);
        self.start_piece(Running { is_stream: true, ready_bytes, ..running })
    }

    /// As [`InterHost::start`], for an operation of which the first bytes have arrived already.
    ///
    /// # Safety
    /// As [`InterHost::start`].
    pub(crate) unsafe fn start_behind(
        &mut self,
        operation: &InterHostOperation,
        first: usize,
    ) -> Result<(), Abort> {
        let mut spec = self.spec(operation);
        // The same at all members: the operator, the group's terms.
        let is_for_receivers =
            matches!(operation.collective, Collective::Allreduce | Collective::Reduce { .. });
        if self.has_external_receiver && is_for_receivers {
            spec.target = spec.target.with_external_receiver();
            // It tells from a segment's number where the segment belongs.
            spec.digest = 0;
        }
        let least = self.stream_min_bytes;
        let is_stream = least.is_some_and(|least| operation.len_bytes() as u64 >= least);
        self.start_piece(Running { is_stream, ..Running::new(operation, spec, first) })
    }

    /// As [`InterHost::poll`], and surely with a poll of the link, whether an operation is under way or not.
    pub(crate) fn poll_link(&mut self) -> Result<bool, Abort> {
        self.make_link_due();
        self.poll()
    }

    /// Asks the aggregator whether it is there, if other members of this process have reason to suspect it.
    pub(crate) fn probe_if_suspect(&mut self) {
        if suspects::patience(&self.address).is_some() {
            self.check();
        }
    }

    /// Whether the aggregator is suspect, and its answer still awaited.
    pub(crate) fn is_suspect(&self) -> bool {
        self.endpoint.awaits_answer() && suspects::patience(&self.address).is_some()
    }

    /// Whether an operation is under way.
    pub(crate) fn is_running(&self) -> bool {
        self.running.is_some()
    }

    /// A descriptor that tells when the aggregator's end of the link is closed.
    pub(crate) fn link(&self) -> BorrowedFd<'_> {
        self.link.as_fd()
    }

    /// Takes no further result, tells the aggregator that its tree is lost to this member, and says where it
    /// stood.
    ///
    /// # Panics
    /// If it retained nothing.
    pub(crate) fn cut_off(mut self) -> CutOff {
        self.endpoint.abort(AbortReason::NodeLost);
        let standing = self.endpoint.standing();
        self.close_gracefully(CUT_OFF_TIMEOUT);
        let cut = self.cut.filter(|_| standing.is_started);
        let retained = self.retained.take().expect("who may be cut off retains results");
        CutOff { standing, running: self.running.take(), cut, retained }
    }

    /// Fails the group for a reason that this member has heard of elsewhere, with `host` at fault.
    pub(crate) fn pass_on(&mut self, reason: AbortReason, host: usize) {
        self.running = None;
        match self.endpoints.get(host) {
            Some(&at_fault) => self.endpoint.pass_on(Abort { reason, at_fault }),
            None => self.endpoint.abort(reason),
        }
        self.close_gracefully(GRACE_TIMEOUT);
    }

    /// Whether other members may need this one when it has left: it has nothing under way, and what they may lack. Its link to the
    /// aggregator may have ended in the very round that brought the last result, of which nobody has heard yet.
    pub(crate) fn may_be_needed(&self) -> bool {
        self.retained.is_some() && self.running.is_none()
    }

    /// Goes on until the aggregator's end of the link is closed, and tells nobody.
    #[cfg(test)]
    pub(crate) fn pump_until_gone(&mut self) {
        while !self.is_gone {
            self.make_link_due();
            self.pump();
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    /// Leaves the group, and stays for those that have not.
    pub(crate) fn begin_to_leave(&mut self) {
        self.endpoint.leave();
        // The aggregator's link says the rest.
        self.datagrams = None;
        self.make_link_due();
        self.pump();
    }

    /// One round of a member that has left. `true` once all have.
    pub(crate) fn have_all_left(&mut self) -> Result<bool, Abort> {
        self.make_link_due();
        self.pump();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::AllHaveLeft => return Ok(true),
                Event::Failed(abort) => return Err(abort),
                _ => {}
            }
        }
        Ok(false)
    }

    /// Whether the link has not taken all that this member has to say.
    pub(crate) fn has_unsaid(&self) -> bool {
        !self.endpoint.is_drained() || self.link.wants_write()
    }

    /// Has the next round poll the link.
    fn make_link_due(&mut self) {
        self.round = Round::Full;
        self.link_due_in = 0;
    }

    /// What an operation asks of this member's endpoint.
    fn spec(&self, operation: &InterHostOperation) -> OperationSpec {
        let &InterHostOperation { collective, datatype, elements, .. } = operation;
        let is_root = |root: u32| root == self.host;
        let (operator, target, contributes, receives) = match collective {
            Collective::Barrier => return OperationSpec::BARRIER,
            Collective::Broadcast { root } => {
                (Operator::Broadcast, Target::All, is_root(root), !is_root(root))
            }
            Collective::Reduce { root } => {
                let to = Target::Member(self.endpoints[root as usize]);
                (operation.operator, to, true, is_root(root))
            }
            _ => (operation.operator, Target::All, true, true),
        };
        // Of this operation alone: a host may have carried out others over direct links.
        let digest = (operation.digest_after(0) >> 32) as u32;
        OperationSpec { operator, datatype, elements, target, contributes, receives, digest }
    }

    /// The first `ready_bytes` of the vector may be sent.
    pub fn make_ready(&mut self, ready_bytes: usize) {
        let (Some(running), Some(number)) = (&mut self.running, self.number) else { return };
        running.ready_bytes = ready_bytes;
        self.round = Round::Full;
        self.endpoint.make_ready(number, running.ready_bytes.saturating_sub(running.piece.start));
    }

    /// How much of the result is in its place, from the first byte on without a gap.
    pub fn received_bytes(&self) -> usize {
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
                self.cut = self.endpoint.cut(number);
                self.running = Some(running);
                self.round = Round::First;
                Ok(())
            }
            Err(StartError::Failed(abort)) => {
                running.piece = first..first;
                self.running = Some(running);
                Err(abort)
            }
            Err(other) => unreachable!("checked before the operation came here: {other}"),
        }
    }

    /// What carries this member's data now: `shm`, `tcp`, `udp` or `xdp`, and why it is not what was asked for.
    pub fn carrier(&self) -> Cow<'static, str> {
        let reason =
            self.datagrams.as_ref().and_then(|datagrams| datagrams.without_bypass.as_ref());
        match reason {
            Some(reason) => Cow::Owned(format!("{} ({reason})", self.carrier)),
            None => Cow::Borrowed(self.carrier),
        }
    }

    /// Lets `counters` know how many results come by multicast.
    pub fn report_multicasts_to(&mut self, counters: Arc<Counters>) {
        self.counters = Some(counters);
    }

    fn count_multicasts(&self) {
        if let (Some(counters), true) = (&self.counters, self.has_open_datagrams()) {
            counters.set_multicast_results(self.endpoint.multicast_results());
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

    fn on_reachability(&mut self, reachability: Reachability) {
        let is_open = reachability == Reachability::Reachable;
        match &mut self.datagrams {
            Some(datagrams) if is_open => {
                datagrams.is_open = true;
                self.carrier = datagrams.carrier();
            }
            _ => {
                self.datagrams = None;
                self.carrier = "tcp";
            }
        }
    }

    /// Keeps what others may lack of the operation just completed.
    fn retain(&mut self, number: OperationNumber) {
        if let (Some(retained), Some(running), Some(cut)) =
            (&mut self.retained, &self.running, self.cut)
        {
            retained.keep(number, running, cut);
        }
    }

    /// Returns when the aggregator can read the last words of this member, whatever becomes of its process.
    fn close_gracefully(&mut self, timeout: Duration) {
        let deadline = Instant::now() + timeout;
        let mut nap = DELIVERY_NAP_MIN;
        self.round = Round::Full;
        loop {
            self.pump();
            let is_flushed = matches!(self.link.flush(), Ok(Sent::Taken) | Err(_));
            let is_said = self.endpoint.is_drained() && is_flushed;
            if is_said && self.link.has_delivered() || self.is_gone || Instant::now() >= deadline {
                return;
            }
            if is_said {
                // An acknowledgement wakes nobody.
                self.sleep(nap);
                nap = (2 * nap).min(DELIVERY_NAP_MAX);
            } else {
                self.sleep(Duration::from_millis(5));
            }
        }
    }
}

impl InterHost for TreeMember {
    unsafe fn start(&mut self, operation: &InterHostOperation) -> Result<(), Abort> {
        // SAFETY: as the caller of this function promises.
        unsafe { self.start_behind(operation, 0) }
    }

    fn poll(&mut self) -> Result<bool, Abort> {
        self.pump();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Completed(number) => {
                    self.retain(number);
                    match self.running.take() {
                        Some(running) if running.piece.end < running.len_bytes => {
                            self.start_piece(running)?;
                            self.pump();
                        }
                        _ => {
                            self.count_multicasts();
                            return Ok(true);
                        }
                    }
                }
                Event::Failed(abort) => return Err(abort),
                Event::Datagrams(reachability) => self.on_reachability(reachability),
                Event::Joined
                | Event::DatagramPeer(_)
                | Event::Multicast(_)
                | Event::AllHaveLeft => {}
            }
        }
        Ok(false)
    }

    fn has_nothing_yet(&mut self) -> bool {
        self.expects_empty_poll()
    }

    fn sleep(&mut self, time: Duration) {
        let due = self.endpoint.poll_timeout();
        let time = due.map_or(time, |due| {
            time.min(Duration::from_nanos(due.since_ns(time_since(self.clock))))
        });
        if time.is_zero() {
            return;
        }
        self.round = Round::Full;
        let link = std::slice::from_mut(&mut self.link);
        // A wait that fails is a link that fails, and the next poll says so.
        match &mut self.datagrams {
            Some(datagrams) => {
                let Datagrams { socket, multicast_receiver, .. } = datagrams;
                let receiver = multicast_receiver.as_mut();
                let woken = wait_with_datagrams(&mut self.link, socket, receiver, time);
                let woken = woken.unwrap_or(WakeSources { link: true, datagrams: true });
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

    /// The aggregator tells of a failed member over the link that every poll reads. Whether the aggregator itself is
    /// there has to be asked.
    fn check(&mut self) {
        self.round = Round::Full;
        let suspected = suspects::patience(&self.address);
        let patience = suspected.unwrap_or(Patience::USUAL);
        let is_there = self.endpoint.ask_node(time_since(self.clock), patience);
        if !is_there && suspected != Some(Patience::WARNED) {
            suspects::warn(&self.address);
        }
    }

    fn completes_without_polling(&mut self) -> bool {
        let is_last = self.running.as_ref().is_none_or(|it| it.piece.end == it.len_bytes);
        is_last && self.endpoint.is_all_sent() && matches!(self.link.flush(), Ok(Sent::Taken))
    }

    fn host_at_fault(&self, abort: &Abort) -> Option<usize> {
        self.endpoints.iter().position(|endpoint| *endpoint == abort.at_fault)
    }

    fn abort(&mut self, reason: AbortReason) {
        self.running = None;
        self.endpoint.abort(reason);
        self.close_gracefully(GRACE_TIMEOUT);
    }

    fn leave(&mut self) {
        self.endpoint.leave();
        self.close_gracefully(GRACE_TIMEOUT);
    }
}

fn time_since(clock: Instant) -> Time {
    Time(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
}
