//! How a leader takes its place: the link to its aggregator, datagrams beside it, and the wait until the
//! aggregator has let it in.

use std::net::{SocketAddr, ToSocketAddrs};
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, ShortVectors};
use tributary_transport::udp::{DATAGRAM_PAYLOAD_BYTES_MAX, ServiceAddress, WHOLE_PAYLOAD_BYTES};
use tributary_transport::{
    AuthenticationKey, DatagramSocket, Link, ShmOptions, TcpOptions, connect_shm, connect_tcp,
};
use tributary_wire::control::{EndpointGrant, GroupGrant, MulticastGrant};
use tributary_wire::frame::{Abort, AbortReason};

use super::TreeMember;
use super::datagrams::Datagrams;
use super::round::Round;
use crate::operation::InterHost;
use tributary_settings::{ChannelChoice, TransportChoice};

/// How long an aggregator may take to let a member in.
const JOIN_TIMEOUT: Duration = Duration::from_secs(10);

/// Where results are multicast: vectors that are cut into whole packets. 8 hosts of a lab, us by
/// datagram in such segments and over TCP in one: 4 KiB 99 and 147, 16 KiB 254 and 168.
const SHORT_VECTORS: ShortVectors = ShortVectors {
    vector_max_bytes: 8 << 10,
    segment_max_bytes: WHOLE_PAYLOAD_BYTES,
    may_exceed_window: false,
};

/// Where packets are lost: what is in datagrams is sent again within hundreds of microseconds, and what TCP carries
/// after milliseconds.
const LOSSY_VECTORS: ShortVectors =
    ShortVectors { vector_max_bytes: u64::MAX, may_exceed_window: true, ..SHORT_VECTORS };

/// Why a member could not take its place.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EnterError {
    /// The aggregator does not answer.
    #[error("aggregation node at {address} can't be reached: {problem}")]
    Unreachable {
        /// Its aggregator's address.
        address: String,
        /// What the system says.
        problem: String,
    },
    /// Shared memory was asked for where there is none.
    #[error("aggregation node at {address} offers no shared memory on this machine")]
    NoSharedMemory {
        /// Its aggregator's address.
        address: String,
    },
    /// The aggregator did not answer in time.
    #[error("aggregation node at {address} did not let this host in within {} s", JOIN_TIMEOUT.as_secs())]
    NotLetIn {
        /// Its aggregator's address.
        address: String,
    },
    /// The aggregator failed the group.
    #[error("aggregation node at {address} turned this host away: {reason}")]
    TurnedAway {
        /// Its aggregator's address.
        address: String,
        /// What the aggregator said.
        reason: AbortReason,
    },
}

/// How a member may reach its aggregator.
#[derive(Clone, Debug)]
pub struct Approach {
    /// What the link is.
    pub transport: TransportChoice,
    /// What goes beside it.
    pub channel: ChannelChoice,
    /// The host's service whose sockets take datagrams past the network stack; none if they are to go through it.
    pub bypass: Option<ServiceAddress>,
}

impl TreeMember {
    /// Connects the leader of `host` to its aggregator, and waits until the aggregator has let it in.
    pub fn enter(
        group: &GroupGrant,
        host: u32,
        approach: &Approach,
        machine: &str,
        stream_min_bytes: Option<u64>,
    ) -> Result<Self, EnterError> {
        let grant = &group.endpoints[host as usize];
        let Connected { link, mut datagrams, carrier } = connect(group, grant, approach, machine)?;
        let mut endpoint = Endpoint::new(EndpointConfig::of_grant(group, grant, 1));
        // By the group's terms alone, which are the same for all members. An external receiver knows
        // only the grant's segments.
        let is_cut = group.multicast.is_some() && group.external_receiver.is_none();
        let short_vectors = is_cut.then_some(SHORT_VECTORS);
        if let Some(short) = short_vectors {
            endpoint.cut_short_vectors(short);
        }
        if let Some(port) = datagrams.as_ref().and_then(Datagrams::port) {
            endpoint.offer_datagrams(
                port,
                segment_max_bytes(group.payload_max_bytes, approach.channel),
            );
        }
        if let (Some(datagrams), Some(multicast)) = (&mut datagrams, &group.multicast) {
            datagrams.multicast_receiver = open_multicast_receiver(datagrams, multicast);
            if datagrams.multicast_receiver.is_some() {
                endpoint.subscribe_multicast(multicast.capability);
            }
        }
        if let (Some(datagrams), Some(service)) = (&mut datagrams, &approach.bypass) {
            datagrams.bypass_stack(service);
        }
        let mut member = Self {
            endpoint,
            link,
            address: grant.address.tcp.clone(),
            datagrams,
            host,
            endpoints: group.endpoints.iter().map(|endpoint| endpoint.endpoint).collect(),
            carrier,
            round: Round::Full,
            link_due_in: 0,
            clock: Instant::now(),
            running: None,
            number: None,
            cut: None,
            retained: None,
            stream_min_bytes,
            is_gone: false,
            counters: None,
            has_external_receiver: group.external_receiver.is_some(),
            short_vectors,
        };
        member.await_place(&grant.address.tcp)?;
        Ok(member)
    }

    /// Sends vectors of any length in datagrams from the next operation on, or as ever again. All members do so between
    /// the same two operations.
    pub(crate) fn expect_losses(&mut self, is_lossy: bool) {
        if self.has_external_receiver {
            return;
        }
        let short = if is_lossy { Some(LOSSY_VECTORS) } else { self.short_vectors };
        self.endpoint.recut_short_vectors(short);
    }

    /// Waits until the aggregator at `address` has let the member in, and it is known whether datagrams
    /// arrive.
    fn await_place(&mut self, address: &str) -> Result<(), EnterError> {
        let deadline = Instant::now() + JOIN_TIMEOUT;
        let mut is_joined = false;
        let mut is_undecided = self.datagrams.is_some();
        loop {
            self.pump();
            match self.endpoint.poll_event() {
                Some(Event::Joined) => is_joined = true,
                Some(Event::DatagramPeer(port)) => self.on_datagram_peer(port.get()),
                Some(Event::Datagrams(reachability)) => {
                    self.on_reachability(reachability);
                    is_undecided = false;
                }
                // How long to wait for datagrams is the endpoint's to say.
                None if is_joined && !is_undecided => return Ok(()),
                Some(Event::Failed(Abort { reason, .. })) => {
                    return Err(EnterError::TurnedAway { address: address.to_owned(), reason });
                }
                _ if Instant::now() >= deadline => {
                    return Err(EnterError::NotLetIn { address: address.to_owned() });
                }
                _ => self.sleep(Duration::from_millis(20)),
            }
        }
    }
}

/// The longest segment that goes by datagram. Where nothing else is asked for, it crosses the
/// network in one piece: longer ones are TCP's, which cuts them in hardware.
fn segment_max_bytes(payload_max_bytes: u32, channel: ChannelChoice) -> u32 {
    match channel {
        ChannelChoice::Udp => payload_max_bytes.min(DATAGRAM_PAYLOAD_BYTES_MAX),
        ChannelChoice::Auto | ChannelChoice::Tcp | ChannelChoice::Xdp => {
            payload_max_bytes.min(WHOLE_PAYLOAD_BYTES)
        }
    }
}

/// A socket that is subscribed to a group's multicast where its link starts; none if it can't be had, and
/// then this member never tells the group's aggregator of a subscription, and the aggregator sends it every result.
fn open_multicast_receiver(
    datagrams: &Datagrams,
    multicast: &MulticastGrant,
) -> Option<DatagramSocket> {
    let SocketAddr::V4(ours) = datagrams.socket.address().ok()? else { return None };
    let mut receiver =
        DatagramSocket::subscribe(multicast.address.parse().ok()?, *ours.ip()).ok()?;
    // Others may send to the address, and other groups have it too if there are many. Without a filter what is theirs
    // is dropped here.
    let _ = receiver.queue_holders([multicast.capability]);
    Some(receiver)
}

/// A link, and what stands beside it.
struct Connected {
    link: Box<dyn Link>,
    datagrams: Option<Datagrams>,
    carrier: &'static str,
}

fn connect(
    group: &GroupGrant,
    grant: &EndpointGrant,
    approach: &Approach,
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
            let key = group.key.map(AuthenticationKey::new);
            if let Some(key) = key {
                link.authenticate(key);
            }
            let is_wanted = approach.channel != ChannelChoice::Tcp;
            let datagrams = is_wanted.then(|| Datagrams::beside(&link, key)).flatten();
            Ok(Connected { link: Box::new(link), datagrams, carrier: "tcp" })
        }
    }
}
