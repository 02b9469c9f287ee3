//! A leader's place in an aggregation tree: the endpoint machine over its link.

use std::net::ToSocketAddrs;
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, OperationSpec};
use tributary_protocol::{Carrier, Time};
use tributary_transport::{Link, Sent, ShmOptions, TcpOptions, connect_shm, connect_tcp, wait};
use tributary_wire::control::{EndpointGrant, GroupGrant};
use tributary_wire::frame::{Abort, AbortReason};

use crate::settings::TransportChoice;

/// How long a node may take to let a member in.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a farewell may take to leave this process.
const FAREWELL_TIMEOUT: Duration = Duration::from_millis(500);

/// A member of a group, connected.
pub(crate) struct TreeMember {
    endpoint: Endpoint,
    link: Box<dyn Link>,
    /// Where the endpoint's time starts.
    clock: Instant,
    running: Option<Running>,
}

/// The operation under way, and its buffers.
struct Running {
    source: *const u8,
    target: *mut u8,
    len_bytes: usize,
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
        transport: TransportChoice,
        machine: &str,
    ) -> Result<Self, EnterError> {
        let link = connect(group, grant, transport, machine)?;
        let endpoint = Endpoint::new(EndpointConfig {
            group: group.group,
            epoch: group.epoch,
            child: grant.child,
            capability: grant.capability,
            endpoint: grant.endpoint,
            osos: group.osos,
            payload_max_bytes: group.payload_max_bytes,
            operations_max: 1,
        });
        let mut member = Self { endpoint, link, clock: Instant::now(), running: None };
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let address = || grant.address.tcp.clone();
        loop {
            member.pump();
            match member.endpoint.poll_event() {
                Some(Event::Joined) => return Ok(member),
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
        use tributary_protocol::endpoint::StartError;
        debug_assert!(self.running.is_none(), "operations of a communicator run one by one");
        match self.endpoint.start(spec) {
            Ok(_) => {
                self.running = Some(Running { source, target, len_bytes });
                Ok(())
            }
            Err(StartError::Failed(abort)) => Err(abort),
            Err(other) => unreachable!("checked before the operation came here: {other}"),
        }
    }

    /// Goes as far as it can without waiting. `true` once the operation is complete.
    pub(crate) fn poll(&mut self) -> Result<bool, Abort> {
        self.pump();
        match self.endpoint.poll_event() {
            Some(Event::Completed(_)) => {
                self.running = None;
                Ok(true)
            }
            Some(Event::Failed(abort)) => {
                self.running = None;
                Err(abort)
            }
            Some(Event::Joined | Event::DatagramPeer(_) | Event::Datagrams(_)) | None => Ok(false),
        }
    }

    /// Sleeps until the link may have something, or for `time`.
    pub(crate) fn sleep(&mut self, time: Duration) {
        // A wait that fails is a link that fails, and the next poll says so.
        let _ = wait(std::slice::from_mut(&mut self.link), Duration::ZERO, Some(time));
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
            if (self.endpoint.is_drained() && is_flushed) || Instant::now() >= deadline {
                return;
            }
            self.sleep(Duration::from_millis(5));
        }
    }

    /// Takes what has arrived and sends what may be sent.
    fn pump(&mut self) {
        if self.receive().is_err() || self.transmit().is_err() {
            self.link.shutdown();
            self.endpoint.handle_link_closed();
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
            let (Some(body), Some(running)) = (body, &self.running) else { continue };
            assert!(body.bytes.end <= running.len_bytes, "the endpoint cuts its own vector");
            assert_eq!(body.bytes.len(), frame.payload.len(), "headers state their payload");
            // SAFETY: the range lies within the target, checked above, which the caller of `start`
            // keeps valid while the operation runs; a frame never overlaps a user's buffer.
            unsafe {
                let target = running.target.add(body.bytes.start);
                target.copy_from_nonoverlapping(frame.payload.as_ptr(), frame.payload.len());
            }
        }
    }

    fn transmit(&mut self) -> Result<(), LinkGone> {
        while let Some(transmit) = self.endpoint.peek_transmit() {
            let payload: &[u8] = match (&transmit.body, &self.running) {
                (Some(body), Some(running)) => {
                    assert!(body.bytes.end <= running.len_bytes, "segments lie in the vector");
                    // SAFETY: the range lies within the source, checked above, which the caller
                    // of `start` keeps valid and unchanged until its segment was sent.
                    unsafe {
                        let source = running.source.add(body.bytes.start);
                        std::slice::from_raw_parts(source, body.bytes.len())
                    }
                }
                _ => &[],
            };
            match self.link.send(&transmit.header.encode(), payload) {
                Ok(Sent::Taken) => self.endpoint.pop_transmit(time_since(self.clock)),
                Ok(Sent::Full) => return Ok(()),
                Err(_) => return Err(LinkGone),
            }
        }
        match self.link.flush() {
            Ok(_) => Ok(()),
            Err(_) => Err(LinkGone),
        }
    }
}

fn time_since(clock: Instant) -> Time {
    Time(u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX))
}

/// The link failed or the node broke the protocol; either way it is closed.
struct LinkGone;

fn connect(
    group: &GroupGrant,
    grant: &EndpointGrant,
    transport: TransportChoice,
    machine: &str,
) -> Result<Box<dyn Link>, EnterError> {
    let address = &grant.address;
    let unreachable =
        |problem: String| EnterError::Unreachable { address: address.tcp.clone(), problem };
    let is_near = address.machine == machine;
    match (&address.shm, transport) {
        (Some(path), TransportChoice::Auto | TransportChoice::Shm) if is_near => {
            let options = ShmOptions::new(group.payload_max_bytes)
                .map_err(|error| unreachable(error.to_string()))?;
            let link = connect_shm(path.as_ref(), options, JOIN_TIMEOUT)
                .map_err(|error| unreachable(error.to_string()))?;
            Ok(Box::new(link))
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
            let options = TcpOptions::new(group.payload_max_bytes)
                .map_err(|error| unreachable(error.to_string()))?;
            let link = connect_tcp(socket, options, JOIN_TIMEOUT)
                .map_err(|error| unreachable(error.to_string()))?;
            Ok(Box::new(link))
        }
    }
}
