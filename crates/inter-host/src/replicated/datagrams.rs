//! Contributions as datagrams: to all members of a group at once, as copies or by multicast, and only from hosts that prove
//! who they are.

use std::net::{IpAddr, SocketAddr};

use arrayvec::ArrayVec;
use tributary_replicated::MEMBERS_MAX;
use tributary_settings::Ports;
use tributary_transport::udp::{Admission, DatagramStats, Delivery, OpenError, ServiceAddress};
use tributary_transport::{
    Armed, AuthenticationKey, Datagram, DatagramSocket, ListenError, Sent, Unqueued,
};
use tributary_wire::ChildIndex;
use tributary_wire::frame::{
    CAPABILITY_OFFSET, Contribution, Edge, HEADER_BYTES, Header, Message, Part, RepeatedHead,
};

use super::multicast::Subscription;
use crate::direct::{Identity, listen_within};

/// Most datagrams that are taken in one round. More wait for the next: a host that sends without end holds up nothing else.
const TAKEN_MAX: usize = 256;

/// How often a host greets another, in a row. With 2% of loss 1 of 100,000 is not greeted.
const GREETINGS: usize = 3;

/// Where a host takes the datagrams of one communicator.
pub struct Endpoint {
    socket: DatagramSocket,
}

/// Why a host can't take datagrams.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("can't take datagrams of other hosts at {address}: {problem}")]
pub struct DatagramsError {
    address: IpAddr,
    problem: ListenError,
}

impl Endpoint {
    /// Takes datagrams at a port that the system chooses, or at one of these.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn bind(
        address: IpAddr,
        ports: Option<Ports>,
    ) -> Result<(Self, SocketAddr), DatagramsError> {
        let is_taken = |problem: &ListenError| *problem == ListenError::InUse;
        let opened = listen_within(address, ports, DatagramSocket::bind, is_taken)
            .and_then(|socket| socket.address().map(|address| (socket, address)));
        match opened {
            Ok((socket, bound)) => Ok((Self { socket }, bound)),
            Err(problem) => Err(DatagramsError { address, problem }),
        }
    }
}

/// A contribution that the one behind it repeats.
#[derive(Clone, Copy)]
pub(super) struct Repeated<'a> {
    pub(super) head: RepeatedHead,
    pub(super) bytes: &'a [u8],
}

/// The receivers of a datagram.
#[derive(Clone, Copy)]
pub(super) enum Receivers<'a> {
    /// Each of these hosts gets a copy.
    Hosts(&'a [u32]),
    /// All subscribers of the level's multicast get the one that is sent.
    Level(usize),
}

/// This host's datagrams to and from all others.
pub(super) struct Datagrams {
    socket: DatagramSocket,
    unqueued: Unqueued,
    identity: Identity,
    /// Where this host's frames say that they come from.
    edge: Edge,
    /// By host.
    addresses: Vec<SocketAddr>,
    /// By host; empty where frames carry no codes.
    keys: Vec<Option<AuthenticationKey>>,
    /// By level; none where its groups do not multicast.
    subscriptions: Vec<Option<Subscription>>,
    /// A contribution and what it repeats, one behind the other.
    payload: Vec<u8>,
    refused: u64,
    /// Datagrams to all addresses come by one ring, and rarely by their sockets.
    has_ring: bool,
    #[cfg(test)]
    pub(super) faults: Option<super::tests::faults::Faults>,
}

impl Datagrams {
    pub(super) fn new(
        endpoint: Endpoint,
        identity: Identity,
        edge: Edge,
        addresses: Vec<SocketAddr>,
    ) -> Self {
        let Endpoint { mut socket } = endpoint;
        // A filter is no check: where the kernel refuses it, strangers cost a wake-up each.
        let _ = socket.queue_holders([identity.secret]);
        let me = u32::from(edge.child.0);
        let keys = (0..addresses.len() as u32).map(|host| identity.link_key([me, host])).collect();
        Self {
            unqueued: socket.drop_counter(),
            socket,
            identity,
            edge,
            addresses,
            keys,
            subscriptions: Vec::new(),
            payload: Vec::new(),
            refused: 0,
            has_ring: false,
            #[cfg(test)]
            faults: None,
        }
    }

    /// Takes what the group of the next level multicasts, whose first member is `first`; nothing if it has none. False where that
    /// can't be had. A code is between two hosts, so frames with codes are never multicast.
    pub(super) fn subscribe(&mut self, first: Option<u32>) -> bool {
        let level = self.subscriptions.len() as u32;
        let first = first.filter(|_| !self.identity.is_authenticated());
        let subscription = first.and_then(|first| {
            let first = self.addresses[first as usize];
            Subscription::open(first, level, &self.socket, self.edge.capability)
        });
        self.subscriptions.push(subscription);
        self.subscriptions.last().is_some_and(Option::is_some)
    }

    pub(super) fn is_subscribed(&self, level: usize) -> bool {
        self.subscription(level).is_some()
    }

    /// Takes no multicasts of a level any more.
    pub(super) fn unsubscribe(&mut self, level: usize) {
        if let Some(subscription) = self.subscriptions.get_mut(level) {
            *subscription = None;
        }
    }

    /// From now on takes datagrams out of a ring, where a program of this service puts them: those to this host, and what the groups
    /// multicast that it has subscribed to.
    ///
    /// # Errors
    /// If there can be no ring. Datagrams come as before, then.
    pub(super) fn receive_by_ring(&mut self, service: &ServiceAddress) -> Result<(), OpenError> {
        let own = (self.addresses[usize::from(self.edge.child.0)], &self.socket);
        let multicasts = self.subscriptions.iter().flatten().map(|it| (it.address, &it.socket));
        // Half of the capability: what is delivered is judged by all of it.
        let [word @ .., _, _, _, _, _, _, _, _] = self.edge.capability.to_bytes();
        let admission = Admission { offset_bytes: CAPABILITY_OFFSET as u16, word };
        let mut delivery = Delivery::open(own.0.ip(), service)?;
        for (target, socket) in std::iter::once(own).chain(multicasts) {
            delivery.add(target, socket, admission)?;
        }
        self.socket.receive_by_ring(delivery);
        for subscription in self.subscriptions.iter_mut().flatten() {
            subscription.socket.expect_little();
        }
        self.has_ring = true;
        Ok(())
    }

    /// Gets ready for a sleep until so many datagrams have come, where they come by a ring, or one has. False if there is one.
    pub(super) fn arm(&mut self, lacking: u32) -> bool {
        self.socket.arm_for(lacking) == Armed::Asleep
    }

    /// Ends what [`Datagrams::arm`] began.
    pub(super) fn disarm(&mut self) {
        self.socket.disarm(true);
        for subscription in self.subscriptions.iter_mut().flatten() {
            subscription.socket.disarm(true);
        }
    }

    fn subscription(&self, level: usize) -> Option<&Subscription> {
        self.subscriptions.get(level)?.as_ref()
    }

    /// Queues a contribution for its receivers. It is lost where there is no room, as if the network had lost it.
    pub(super) fn send(
        &mut self,
        receivers: Receivers<'_>,
        part: Part,
        contribution: &[u8],
        repeated: Option<Repeated<'_>>,
    ) {
        let mut payload = std::mem::take(&mut self.payload);
        payload.clear();
        payload.extend_from_slice(contribution);
        if let Some(Repeated { head, bytes }) = repeated {
            payload.extend_from_slice(&head.encode());
            payload.extend_from_slice(bytes);
        }
        let repeated_bytes = (payload.len() - contribution.len()) as u16;
        let message = Message::Contribution(Contribution { part, repeated_bytes });
        let header = Header { edge: self.edge, message }.encode();
        match receivers {
            Receivers::Level(level) => self.multicast(level, &header, &payload),
            Receivers::Hosts(hosts) => {
                let hosts = hosts.iter().copied();
                #[cfg(test)]
                let hosts = super::tests::faults::survivors(self, hosts, &header, &payload);
                self.send_copies(hosts.into_iter(), &header, &payload);
            }
        }
        self.payload = payload;
    }

    fn multicast(&mut self, level: usize, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        if let Some(address) = self.subscription(level).map(|it| it.address) {
            let sent = self.socket.send(Some(address), header, payload, None);
            let _ = sent.expect("contributions fit datagrams");
        }
    }

    /// One code is not another's, so frames with codes go out one by one, though by one system call as well.
    pub(super) fn send_copies(
        &mut self,
        hosts: impl Iterator<Item = u32>,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
    ) {
        let mut targets = ArrayVec::<SocketAddr, { MEMBERS_MAX as usize }>::new();
        for host in hosts {
            let address = self.addresses[host as usize];
            match &self.keys[host as usize] {
                None => targets.push(address),
                Some(key) => {
                    let sent = self.socket.send(Some(address), header, payload, Some(key));
                    let _ = sent.expect("contributions fit datagrams");
                }
            }
        }
        let sent = self.socket.send_copies(&targets, header, payload);
        let _ = sent.expect("contributions fit datagrams");
    }

    /// Nothing that a level's group multicasts comes here any more; what this host sends goes on.
    #[cfg(test)]
    pub(super) fn deafen(&mut self, level: usize) {
        if let Some(Some(subscription)) = self.subscriptions.get_mut(level) {
            let elsewhere = SocketAddr::from((std::net::Ipv4Addr::LOCALHOST, 0));
            subscription.socket = DatagramSocket::bind(elsewhere).expect("a free port");
        }
    }

    #[cfg(test)]
    pub(super) fn multicast_address(&self, level: usize) -> Option<SocketAddr> {
        self.subscription(level).map(|it| it.address)
    }

    #[cfg(test)]
    pub(super) fn identity(&self) -> Identity {
        self.identity
    }

    #[cfg(test)]
    pub(super) fn edge(&self) -> Edge {
        self.edge
    }

    /// Sends any frame, without a code.
    #[cfg(test)]
    pub(super) fn send_raw(&mut self, to: SocketAddr, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        let _ = self.socket.send(Some(to), header, payload, None).expect("a frame");
        assert_eq!(self.socket.flush(), Sent::Taken);
    }

    pub(super) fn flush(&mut self) -> Sent {
        self.socket.flush()
    }

    /// Hands the contributions that have come to `take`, each with the host that sent it and its payload: those to all members
    /// of the group of `level`, and those to this host alone.
    pub(super) fn take(
        &mut self,
        level: Option<usize>,
        mut take: impl FnMut(u32, &Contribution, &[u8]),
    ) {
        for level in level.map(Some).into_iter().chain([None]) {
            self.receive(level, |host, message, payload| {
                if let Message::Contribution(contribution) = message {
                    take(host, &contribution, payload);
                }
            });
        }
    }

    /// Greets these hosts. The same greeting goes out more than once, for a network may lose one.
    pub(super) fn greet(&mut self, hosts: &[u32]) {
        let header = Header { edge: self.edge, message: Message::Join }.encode();
        for _ in 0..GREETINGS {
            for hosts in hosts.chunks(MEMBERS_MAX.into()) {
                let hosts = hosts.iter().copied();
                #[cfg(test)]
                let hosts = super::tests::faults::survivors(self, hosts, &header, &[]).into_iter();
                self.send_copies(hosts, &header, &[]);
            }
            for level in 0..self.subscriptions.len() {
                self.multicast(level, &header, &[]);
            }
            let _ = self.flush();
        }
    }

    /// Hands the hosts of which a greeting has come to `greeted`, with the level by whose multicast it has; none where it came
    /// to this host alone.
    pub(super) fn take_greetings(&mut self, mut greeted: impl FnMut(u32, Option<usize>)) {
        let levels = 0..self.subscriptions.len();
        for level in levels.map(Some).chain([None]) {
            self.receive(level, |host, message, _| {
                if message == Message::Join {
                    greeted(host, level);
                }
            });
        }
    }

    /// What has come to all subscribers of a level, or to this host alone.
    fn receive(&mut self, level: Option<usize>, mut take: impl FnMut(u32, Message, &[u8])) {
        let own = self.addresses[usize::from(self.edge.child.0)];
        let socket = match level.map(|level| self.subscriptions.get_mut(level)) {
            None => &mut self.socket,
            Some(Some(Some(subscription))) => &mut subscription.socket,
            Some(_) => return,
        };
        for _ in 0..TAKEN_MAX {
            // A socket that fails receives nothing, which the members ask for over their links.
            let Ok(Some(datagram)) = socket.receive() else { return };
            match sender(&self.identity, self.edge, &self.addresses, &self.keys, &datagram) {
                Some((host, message)) => take(host, message, datagram.frame.payload),
                // Loopback brings a host its own multicasts, which a ring does not tell from others.
                None if (level.is_some() || self.has_ring) && datagram.source == own => {}
                None => self.refused += 1,
            }
        }
    }

    /// Whether nothing has come, to this host or to the group of `level`, as far as a system call for each tells.
    pub(super) fn has_nothing(&mut self, level: usize) -> bool {
        let subscription = self.subscriptions.get_mut(level).and_then(Option::as_mut);
        let sockets = subscription.map(|it| &mut it.socket).into_iter().chain([&mut self.socket]);
        sockets.map(DatagramSocket::has_arrived).all(|arrived| matches!(arrived, Ok(false)))
    }

    /// Whether something was received and not taken.
    pub(super) fn holds_more(&self) -> bool {
        let mut subscriptions = self.subscriptions.iter().flatten();
        self.socket.holds_more() || subscriptions.any(|it| it.socket.holds_more())
    }

    #[cfg(test)]
    pub(super) fn address(&self) -> Result<SocketAddr, ListenError> {
        self.socket.address()
    }

    /// Where contributions to a level come in. With a ring, the datagram that ends a sleep may be another level's.
    pub(super) fn sockets_of(&self, level: Option<usize>) -> impl Iterator<Item = &DatagramSocket> {
        let all = if self.has_ring { &self.subscriptions[..] } else { &[] };
        let only = level.filter(|_| !self.has_ring).and_then(|level| self.subscription(level));
        let subscriptions = all.iter().flatten().chain(only);
        std::iter::once(&self.socket).chain(subscriptions.map(|it| &it.socket))
    }

    /// Where anything comes in.
    pub(super) fn sockets(&self) -> impl Iterator<Item = &DatagramSocket> {
        let subscriptions = self.subscriptions.iter().flatten();
        std::iter::once(&self.socket).chain(subscriptions.map(|it| &it.socket))
    }

    /// What was sent from here, and received at all addresses.
    pub(super) fn stats(&self) -> DatagramStats {
        let mut all = self.socket.stats();
        for subscription in self.subscriptions.iter().flatten() {
            let DatagramStats { received, receive_calls, garbage, .. } =
                subscription.socket.stats();
            all.received += received;
            all.receive_calls += receive_calls;
            all.garbage += garbage;
        }
        all
    }

    /// Datagrams that were refused here, and that the kernel has dropped before.
    pub(super) fn refusals(&self) -> (u64, u64) {
        let subscriptions = self.subscriptions.iter().flatten();
        let unqueued: u64 = subscriptions.map(|it| it.unqueued.count()).sum();
        (self.refused + self.stats().garbage, self.unqueued.count() + unqueued)
    }
}

/// The host that has sent something, and what, if it proves to be a member. What it proves that by comes first.
fn sender(
    identity: &Identity,
    own: Edge,
    addresses: &[SocketAddr],
    keys: &[Option<AuthenticationKey>],
    datagram: &Datagram<'_>,
) -> Option<(u32, Message)> {
    let Header { edge, message } = datagram.frame.header;
    if edge.capability != identity.secret {
        return None;
    }
    let ChildIndex(host) = edge.child;
    let key = keys.get(usize::from(host))?;
    if key.is_some_and(|key| !key.authenticates(&datagram.frame)) {
        return None;
    }
    let is_ours = (edge.group, edge.epoch, edge.version) == (own.group, own.epoch, own.version);
    let is_at_home = addresses[usize::from(host)] == datagram.source && edge.child != own.child;
    let is_expected = matches!(message, Message::Contribution(_) | Message::Join);
    (is_ours && is_at_home && is_expected).then_some((host.into(), message))
}
