//! A leader's place in an aggregation tree: the endpoint machine over its link.

#[cfg(test)]
mod tests;

use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, OperationSpec, StartError};
use tributary_protocol::{Carrier, Reach, Time};
use tributary_transport::udp::{DATAGRAM_PAYLOAD_BYTES_MAX, WHOLE_PAYLOAD_BYTES};
use tributary_transport::{
    Beside, DatagramSocket, Link, SealKey, Sent, ShmOptions, TcpOptions, connect_shm, connect_tcp,
    wait, wait_beside,
};
use tributary_wire::OperationNumber;
use tributary_wire::control::{EndpointGrant, GroupGrant};
use tributary_wire::frame::{Abort, AbortReason, STREAM_BYTES_MAX};

use crate::report::Tally;
use crate::settings::{ChannelChoice, TransportChoice};

/// How long a node may take to let a member in.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a farewell may take to leave this process.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);
/// While data travel by datagram, the link is looked at once in so many rounds, and whenever the
/// kernel says that it has something.
const ROUNDS_PER_LINK: u32 = 64;
/// Of the two sockets for datagrams, the one to which results do not usually come is looked at once
/// in so many rounds, and whenever the kernel says that there is something: each look is a system
/// call, in every round of a wait.
const ROUNDS_PER_OTHER: u32 = 8;

/// A member of a group, connected.
pub(crate) struct TreeMember {
    endpoint: Endpoint,
    link: Box<dyn Link>,
    datagrams: Option<Datagrams>,
    /// What carries this member's data, for the report.
    carrier: &'static str,
    /// Rounds until the link is looked at again.
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
    /// Results of reductions go to a process outside the group besides.
    has_outsider: bool,
}

/// What a member needs for datagrams.
struct Datagrams {
    socket: DatagramSocket,
    /// The aggregation node's end of the link.
    peer: SocketAddr,
    is_open: bool,
    /// What all of them are sealed with, if they are.
    key: Option<SealKey>,
    /// Where the group's multicast is heard, if it has any.
    ear: Option<DatagramSocket>,
    /// Rounds until the socket that results do not usually come to is looked at again.
    other_due_in: u32,
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

/// Why a member could not take its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EnterError {
    #[error("aggregation node at {address} can't be reached: {problem}")]
    Unreachable { address: String, problem: String },
    #[error("aggregation node at {address} offers no shared memory on this machine")]
    NoSharedMemory { address: String },
    #[error("aggregation node at {address} did not let this host in within {} s", JOIN_TIMEOUT.as_secs())]
    NotLetIn { address: String },
    #[error("aggregation node at {address} turned this host away: {reason}")]
    TurnedAway { address: String, reason: AbortReason },
}

impl TreeMember {
    /// Connects to the node and waits until it has let the member in.
    pub(crate) fn enter(
        group: &GroupGrant,
        grant: &EndpointGrant,
        approach: Approach,
        machine: &str,
        stream_min_bytes: Option<u64>,
    ) -> Result<Self, EnterError> {
        let Connected { link, mut datagrams, carrier } = connect(group, grant, approach, machine)?;
        let mut endpoint = Endpoint::new(EndpointConfig::of_grant(group, grant, 1));
        if let Some(port) = datagrams.as_ref().and_then(Datagrams::port) {
            endpoint.offer_datagrams(
                port,
                segment_max_bytes(group.payload_max_bytes, approach.channel),
            );
        }
        if let (Some(datagrams), Some(multicast)) = (&mut datagrams, &group.multicast) {
            datagrams.ear = open_ear(datagrams, &multicast.address);
            if datagrams.ear.is_some() {
                endpoint.hear_multicast(multicast.capability);
            }
        }
        let mut is_undecided = datagrams.is_some();
        let mut is_joined = false;
        let mut member = Self {
            endpoint,
            link,
            datagrams,
            carrier,
            link_due_in: 0,
            clock: Instant::now(),
            running: None,
            number: None,
            stream_min_bytes,
            is_gone: false,
            tally: None,
            has_outsider: group.outsider.is_some(),
        };
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let address = || grant.address.tcp.clone();
        loop {
            member.pump();
            match member.endpoint.poll_event() {
                Some(Event::Joined) => is_joined = true,
                Some(Event::DatagramPeer(port)) => member.on_datagram_peer(port.get()),
                Some(Event::Datagrams(reach)) => {
                    member.on_reach(reach);
                    is_undecided = false;
                }
                // How long to wait for datagrams is the endpoint's to say.
                None if is_joined && !is_undecided => return Ok(member),
                Some(Event::Failed(abort)) => {
                    return Err(EnterError::TurnedAway {
                        address: address(),
                        reason: abort.reason,
                    });
                }
                _ if Instant::now() >= deadline => {
                    return Err(EnterError::NotLetIn { address: address() });
                }
                _ => member.sleep(Duration::from_millis(20)),
            }
        }
    }

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

    fn count_multicasts(&self) {
        if let (Some(tally), true) = (&self.tally, self.has_open_datagrams()) {
            tally.set_multicast_results(self.endpoint.multicast_results());
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

    /// Sleeps until the link may have something, or for `time`.
    pub(crate) fn sleep(&mut self, time: Duration) {
        let due = self.endpoint.poll_timeout();
        let time = due.map_or(time, |due| {
            time.min(Duration::from_nanos(due.since_ns(time_since(self.clock))))
        });
        if time.is_zero() {
            return;
        }
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
                    datagrams.other_due_in = 0;
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

    /// Takes what has arrived and sends what may be sent.
    fn pump(&mut self) {
        let now = time_since(self.clock);
        self.receive_datagrams(now);
        let is_link_due = self.link_due_in == 0
            || !self.has_open_datagrams()
            || self.endpoint.expected_carrier() == Carrier::Link;
        self.link_due_in = if is_link_due { ROUNDS_PER_LINK } else { self.link_due_in - 1 };
        if self.endpoint.poll_timeout().is_some_and(|due| due <= now) {
            self.endpoint.handle_timeout(now);
        }
        let received = if is_link_due { self.receive() } else { Ok(()) };
        // The node's last words, above all why the group failed, may still be unread when sending
        // to it already fails.
        let outcome =
            received.and_then(|()| self.transmit().or_else(|gone| self.receive().and(Err(gone))));
        if outcome.is_err() {
            self.link.shutdown();
            self.is_gone = true;
            self.endpoint.handle_link_closed();
        }
    }

    fn has_open_datagrams(&self) -> bool {
        self.datagrams.as_ref().is_some_and(|datagrams| datagrams.is_open)
    }

    fn receive_datagrams(&mut self, now: Time) {
        let Some(datagrams) = &mut self.datagrams else { return };
        let key = datagrams.key;
        for (socket, carrier) in datagrams.due(self.endpoint.expected_carrier()) {
            // What the system can't receive is as good as lost.
            while let Ok(Some(datagram)) = socket.receive() {
                let frame = datagram.frame;
                if key.is_some_and(|key| !key.has_sealed(&frame)) {
                    continue;
                }
                // A frame that doesn't belong here is dropped: anybody may have sent it.
                let Ok(body) = self.endpoint.handle_frame(now, carrier, &frame.header) else {
                    continue;
                };
                if let (Some(body), Some(running)) = (body, &self.running) {
                    running.fill(body.bytes, frame.payload);
                }
            }
        }
    }

    fn receive(&mut self) -> Result<(), LinkGone> {
        loop {
            let frame = match self.link.receive() {
                Ok(Some(frame)) => frame,
                Ok(None) => return Ok(()),
                Err(_) => return Err(LinkGone),
            };
            let now = time_since(self.clock);
            let body = self
                .endpoint
                .handle_frame(now, Carrier::Link, &frame.header)
                .map_err(|_| LinkGone)?;
            if let (Some(body), Some(running)) = (body, &self.running) {
                running.fill(body.bytes, frame.payload);
            }
        }
    }

    fn transmit(&mut self) -> Result<(), LinkGone> {
        while let Some(transmit) = self.endpoint.peek_transmit() {
            let payload: &[u8] = match (&transmit.body, &self.running) {
                (Some(body), Some(running)) => {
                    assert!(body.bytes.end <= running.piece.len(), "segments lie in the vector");
                    // SAFETY: the range lies within the source, checked above, which the caller
                    // of `start` keeps valid and unchanged until its segment was sent.
                    unsafe {
                        let source = running.source.add(running.piece.start + body.bytes.start);
                        std::slice::from_raw_parts(source, body.bytes.len())
                    }
                }
                _ => &[],
            };
            let header = transmit.header.encode();
            let sent = match (transmit.carrier, &mut self.datagrams) {
                (Carrier::Datagram | Carrier::Multicast, Some(datagrams)) => {
                    datagrams.socket.send(None, &header, payload, datagrams.key.as_ref())
                }
                (Carrier::Datagram | Carrier::Multicast, None) => Ok(Sent::Taken),
                (Carrier::Link, _) => self.link.send(&header, payload),
            };
            match sent {
                Ok(Sent::Taken) => self.endpoint.pop_transmit(time_since(self.clock)),
                Ok(Sent::Full) => break,
                Err(_) => return Err(LinkGone),
            }
        }
        if let Some(datagrams) = &mut self.datagrams
            && datagrams.socket.wants_write()
        {
            // What the kernel has no room for goes out in a later round.
            let _ = datagrams.socket.flush();
        }
        if self.has_open_datagrams() && !self.link.wants_write() {
            return Ok(());
        }
        match self.link.flush() {
            Ok(_) => Ok(()),
            Err(_) => Err(LinkGone),
        }
    }
}

/// How a member may reach its node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Approach {
    pub(crate) transport: TransportChoice,
    pub(crate) channel: ChannelChoice,
}

impl Datagrams {
    /// A socket beside a link, at the same address.
    fn beside(link: &tributary_transport::TcpLink, key: Option<SealKey>) -> Option<Self> {
        let (ours, peer) = (link.local_address().ok()?, link.peer_address().ok()?);
        let socket = DatagramSocket::bind(SocketAddr::new(ours.ip(), 0)).ok()?;
        Some(Self { socket, peer, is_open: false, key, ear: None, other_due_in: 0 })
    }

    /// The sockets to look at in this round: the one that results are `expected` at, and now and then
    /// the other.
    fn due(&mut self, expected: Carrier) -> impl Iterator<Item = (&mut DatagramSocket, Carrier)> {
        let is_other_due = self.other_due_in == 0;
        self.other_due_in = if is_other_due { ROUNDS_PER_OTHER } else { self.other_due_in - 1 };
        let ear = self.ear.as_mut().map(|ear| (ear, Carrier::Multicast));
        let socket = Some((&mut self.socket, Carrier::Datagram));
        // The group's address first: who has the result from there drops the copy.
        let is_due = move |(_, carrier): &(_, Carrier)| is_other_due || *carrier == expected;
        [ear.filter(is_due), socket.filter(is_due)].into_iter().flatten()
    }

    fn port(&self) -> Option<std::num::NonZeroU16> {
        self.socket.address().ok()?.port().try_into().ok()
    }
}

impl Running {
    /// Puts a result where it belongs.
    fn fill(&self, bytes: Range<usize>, payload: &[u8]) {
        assert!(bytes.end <= self.piece.len(), "the endpoint cuts its own vector");
        assert_eq!(bytes.len(), payload.len(), "headers state their payload");
        // SAFETY: the range lies within the target, checked above, which the caller of `start`
        // keeps valid while the operation runs; a frame never overlaps a user's buffer.
        unsafe {
            let target = self.target.add(self.piece.start + bytes.start);
            target.copy_from_nonoverlapping(payload.as_ptr(), payload.len());
        }
    }
}

/// The longest segment that goes by datagram. Where nothing else is asked for, it crosses the
/// network in one piece: longer ones are TCP's, which cuts them in hardware.
fn segment_max_bytes(payload_max_bytes: u32, channel: ChannelChoice) -> u32 {
    match channel {
        ChannelChoice::Udp => payload_max_bytes.min(DATAGRAM_PAYLOAD_BYTES_MAX),
        ChannelChoice::Auto | ChannelChoice::Tcp => payload_max_bytes.min(WHOLE_PAYLOAD_BYTES),
    }
}

/// A socket that hears a group's multicast where its link starts; none if it can't be had, and then
/// the group's node never hears that this member hears, and sends it every result.
fn open_ear(datagrams: &Datagrams, address: &str) -> Option<DatagramSocket> {
    let SocketAddr::V4(ours) = datagrams.socket.address().ok()? else { return None };
    DatagramSocket::hear(address.parse().ok()?, *ours.ip()).ok()
}

/// A link, and what stands beside it.
struct Connected {
    link: Box<dyn Link>,
    datagrams: Option<Datagrams>,
    carrier: &'static str,
}

fn time_since(clock: Instant) -> Time {
    Time(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The link failed or the node broke the protocol; either way it is closed.
struct LinkGone;

fn connect(
    group: &GroupGrant,
    grant: &EndpointGrant,
    approach: Approach,
    machine: &str,
) -> Result<Connected, EnterError> {
    let address = &grant.address;
    let chunk_bytes = group.stream.map_or(0, |terms| terms.chunk_bytes);
    let payload_max_bytes = group.payload_max_bytes.max(chunk_bytes);
    let unreachable =
        |problem: String| EnterError::Unreachable { address: address.tcp.clone(), problem };
    let is_near = address.machine == machine;
    match (&address.shm, approach.transport) {
        (Some(path), TransportChoice::Auto | TransportChoice::Shm) if is_near => {
            let options = ShmOptions::new(payload_max_bytes)
                .map_err(|error| unreachable(error.to_string()))?;
            let link = connect_shm(path.as_ref(), options, JOIN_TIMEOUT)
                .map_err(|error| unreachable(error.to_string()))?;
            Ok(Connected { link: Box::new(link), datagrams: None, carrier: "shm" })
        }
        (_, TransportChoice::Shm) => {
            Err(EnterError::NoSharedMemory { address: address.tcp.clone() })
        }
        _ => {
            let socket = address
                .tcp
                .to_socket_addrs()
                .map_err(|error| unreachable(error.to_string()))?
                .next()
                .ok_or_else(|| unreachable("the name has no address".to_owned()))?;
            let options = TcpOptions::new(payload_max_bytes)
                .map_err(|error| unreachable(error.to_string()))?;
            let mut link = connect_tcp(socket, options, JOIN_TIMEOUT)
                .map_err(|error| unreachable(error.to_string()))?;
            let key = group.key.map(SealKey::new);
            if let Some(key) = key {
                link.protect(key);
            }
            let is_wanted = approach.channel != ChannelChoice::Tcp;
            let datagrams = is_wanted.then(|| Datagrams::beside(&link, key)).flatten();
            Ok(Connected { link: Box::new(link), datagrams, carrier: "tcp" })
        }
    }
}
