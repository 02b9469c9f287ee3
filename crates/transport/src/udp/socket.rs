//! The socket: sends and receives frames in batches.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, bind, recv, send, sendto,
    socket_with, sockopt,
};
use tributary_inheritance::Uninherited;
use tributary_wire::Capability;
use tributary_wire::frame::{
    CODE_BYTES, HEADER_BYTES, Header, announces_code, announcing_code, without_code,
};

use super::DATAGRAM_PAYLOAD_BYTES_MAX;
use super::bypass::{Bypass, PortBypass, RingBypass};
use super::filter;
use super::inbox::{Inbox, RECEIVE_BATCH};
use super::queue::{Entry, Queue, train};
use super::sys::{self, BATCH, FEW, Outgoing};
use super::unqueued::Unqueued;
use crate::link::check_announced;
use crate::{
    Armed, AuthenticationCode, AuthenticationKey, Frame, ListenError, OsError, SendError, Sent,
};

/// Buffer size requested for each direction; the kernel may give less. A window of segments from
/// each of many children may arrive before this process gets a core.
const SOCKET_BUFFER_BYTES: usize = 4 << 20;

/// Most frames that are queued to be sent together.
const QUEUED_FRAMES_MAX: usize = 64;

/// Most copies of one frame that are queued at once.
pub const COPIES_MAX: usize = QUEUED_FRAMES_MAX;

/// Most errors about datagrams sent earlier that one look at the socket passes over.
const ERRORS_OF_EARLIER_MAX: u32 = 64;

/// Routers that a result may cross on its path to members: those of one site.
pub const MULTICAST_HOPS: u32 = 8;

/// The receivers of what a socket sends to multicast addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MulticastReceivers {
    /// This machine, and all up to [`MULTICAST_HOPS`] routers away.
    Site,
    /// Other machines of the same network, which no router is in front of.
    Network,
}

/// A frame that arrived as a datagram.
#[derive(Clone, Copy, Debug)]
pub struct Datagram<'a> {
    /// The frame. [`Header::decode`] has checked its header, and its length is as announced.
    pub frame: Frame<'a>,
    /// The source address, which can be forged.
    pub source: SocketAddr,
}

/// Counters since the socket was made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DatagramStats {
    /// Frames the kernel took.
    pub sent: u64,
    /// Frames handed out.
    pub received: u64,
    /// Datagrams that came past the network stack, trains as one.
    pub past_stack: u64,
    /// System calls that sent.
    pub send_calls: u64,
    /// System calls that received, including those that found nothing.
    pub receive_calls: u64,
    /// Datagrams that were no frame, and yet began as one; dropped. Others the kernel drops ([`Unqueued`]).
    pub garbage: u64,
    /// Frames that the kernel refused to send, for instance without a route; dropped.
    pub unsent: u64,
}

/// A UDP socket that carries frames.
pub struct DatagramSocket {
    socket: Arc<Uninherited<UdpSocket>>,
    queue: Queue,
    inbox: Inbox,
    sends_trains: bool,
    /// The peer that it is connected to.
    peer: Option<SocketAddr>,
    bypass: Option<Box<Bypass>>,
    stats: DatagramStats,
}

impl DatagramSocket {
    /// Receives datagrams at `address`; port 0 lets the system choose.
    ///
    /// # Errors
    /// If the address is in use, or the system refuses.
    pub fn bind(address: SocketAddr) -> Result<Self, ListenError> {
        let socket = UdpSocket::bind(address).map_err(|error| listen_error("bind", &error))?;
        Self::over(socket)
    }

    /// Receives what is sent to the multicast address `group` and arrives at `interface`. Several
    /// sockets of one machine may subscribe. The datagrams name the group as their source.
    ///
    /// # Errors
    /// If the interface has no multicast, or the system says no.
    pub fn subscribe(group: SocketAddrV4, interface: Ipv4Addr) -> Result<Self, ListenError> {
        let mut socket = Self::subscribe_to_many(group, interface)?;
        socket.inbox.only_source = Some(group.into());
        Ok(socket)
    }

    /// As [`DatagramSocket::subscribe`], of many senders: the datagrams name theirs, and several are
    /// received at once.
    ///
    /// # Errors
    /// As [`DatagramSocket::subscribe`].
    pub fn subscribe_to_many(
        group: SocketAddrV4,
        interface: Ipv4Addr,
    ) -> Result<Self, ListenError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(AddressFamily::INET, SocketType::DGRAM, flags, None)
            .map_err(os("socket"))?;
        sockopt::set_socket_reuseaddr(&socket, true).map_err(os("setsockopt"))?;
        // Bound to the group's address, it gets nothing that was sent to another.
        bind(&socket, &group).map_err(os("bind"))?;
        sockopt::set_ip_add_membership(&socket, group.ip(), &interface)
            .map_err(os("IP_ADD_MEMBERSHIP"))?;
        Self::over(UdpSocket::from(socket))
    }

    /// Sends what goes to multicast addresses out of `interface`, for these receivers.
    ///
    /// # Errors
    /// If the system says no.
    pub fn multicast_from(
        &self,
        interface: Ipv4Addr,
        receivers: MulticastReceivers,
    ) -> Result<(), OsError> {
        let (is_looped, hops) = match receivers {
            MulticastReceivers::Site => (true, MULTICAST_HOPS),
            MulticastReceivers::Network => (false, 1),
        };
        sockopt::set_ip_multicast_if(&self.socket, &interface)?;
        sockopt::set_ip_multicast_loop(&self.socket, is_looped)?;
        sockopt::set_ip_multicast_ttl(&self.socket, hops)?;
        Ok(())
    }

    /// Takes over a socket that is bound.
    pub(super) fn over(socket: UdpSocket) -> Result<Self, ListenError> {
        socket.set_nonblocking(true).map_err(|error| listen_error("fcntl", &error))?;
        // Smaller buffers work too: frames that don't fit are lost and requested again.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BUFFER_BYTES);
        let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BUFFER_BYTES);
        let takes_trains = sys::enable_receive_trains(socket.as_fd());
        // There was no filter before, so there is nothing that the kernel could keep.
        let _ = filter::queue_frames(socket.as_fd());
        Ok(Self {
            socket: Arc::new(Uninherited::new(socket)),
            queue: Queue { bytes: Vec::new(), entries: Vec::with_capacity(QUEUED_FRAMES_MAX) },
            inbox: Inbox::new(),
            // Kernels that can receive trains can send them too.
            sends_trains: takes_trains,
            peer: None,
            bypass: None,
            stats: DatagramStats::default(),
        })
    }

    /// From now on exchanges datagrams with `peer` only.
    ///
    /// # Errors
    /// If the system refuses.
    pub fn connect(&mut self, peer: SocketAddr) -> Result<(), OsError> {
        self.socket
            .connect(peer)
            .map_err(|error| OsError::from(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
        // Drops datagrams that arrived before, which may come from others.
        while let Ok(Some(_)) = self.receive() {}
        self.inbox.only_source = Some(peer);
        self.peer = Some(peer);
        Ok(())
    }

    /// From now on takes frames past the network stack, at the port that this socket is bound to, and sends them so
    /// once a source was confirmed ([`DatagramSocket::confirm_source`]).
    pub fn bypass_stack(&mut self, port: tributary_af_xdp::Port) {
        self.bypass = Some(Box::new(Bypass::Port(PortBypass::new(port))));
    }

    /// From now on takes datagrams out of a ring, too. What the ring does not get comes through the network stack as before, and
    /// everything is sent through it.
    pub fn receive_by_ring(&mut self, delivery: tributary_af_xdp::Delivery) {
        self.bypass = Some(Box::new(Bypass::Ring(RingBypass::new(Some(delivery)))));
    }

    /// Most of this socket's datagrams come to another one, by a ring: this one is asked for the rest rarely.
    pub fn expect_little(&mut self) {
        self.bypass = Some(Box::new(Bypass::Ring(RingBypass::new(None))));
    }

    /// Whether it takes frames past the network stack.
    #[must_use]
    pub fn bypasses_stack(&self) -> bool {
        self.bypass.is_some()
    }

    /// The frame received last came from who it says: others may go back the way that it came.
    pub fn confirm_source(&mut self) {
        if let Some(port) = self.port() {
            port.confirm();
        }
    }

    /// What is queued now goes through the network stack: something that went past it was lost.
    pub fn avoid_bypass(&mut self) {
        if let Some(port) = self.port() {
            port.avoid();
        }
    }

    fn port(&mut self) -> Option<&mut PortBypass> {
        self.bypass.as_mut()?.port()
    }

    /// Gets ready for a sleep until this socket or what goes past the network stack is readable.
    pub(crate) fn arm(&mut self) -> Armed {
        self.arm_for(1)
    }

    /// Gets ready for a sleep until this socket is readable, as it is when the last of so many datagrams has come by its ring.
    pub fn arm_for(&mut self, lacking: u32) -> Armed {
        let may_sleep = self.bypass.as_mut().is_none_or(|bypass| bypass.arm(lacking));
        if may_sleep { Armed::Asleep } else { Armed::Ready }
    }

    /// Ends what [`DatagramSocket::arm`] or [`DatagramSocket::arm_for`] began. `is_readable`: whether the socket itself may be.
    pub fn disarm(&mut self, is_readable: bool) {
        if let Some(bypass) = &mut self.bypass {
            bypass.disarm();
            if is_readable {
                bypass.expect_socket();
            }
        }
    }

    /// Readable if something came past the network stack.
    pub(crate) fn bypass_fd(&self) -> Option<BorrowedFd<'_>> {
        self.bypass.as_ref()?.descriptor()
    }

    /// The address it receives at, with the port that the system chose.
    ///
    /// # Errors
    /// If the system doesn't say.
    pub fn address(&self) -> Result<SocketAddr, ListenError> {
        self.socket.local_addr().map_err(|error| listen_error("getsockname", &error))
    }

    /// Queues one frame for `target`, or for the peer that the socket is connected to. It goes out
    /// with [`DatagramSocket::flush`], or when the queue is full.
    ///
    /// With a key, the frame carries a code.
    ///
    /// # Errors
    /// If the frame is invalid or too long for a datagram; the caller is at fault.
    pub fn send(
        &mut self,
        target: Option<SocketAddr>,
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
        key: Option<&AuthenticationKey>,
    ) -> Result<Sent, SendError> {
        check_announced(header, payload, DATAGRAM_PAYLOAD_BYTES_MAX)?;
        if self.queue.entries.len() == QUEUED_FRAMES_MAX && self.flush() == Sent::Full {
            return Ok(Sent::Full);
        }
        let Queue { bytes, entries } = &mut self.queue;
        let start = bytes.len();
        match key {
            None => {
                bytes.extend_from_slice(header);
                bytes.extend_from_slice(payload);
            }
            Some(key) => {
                bytes.extend_from_slice(&announcing_code(*header));
                bytes.extend_from_slice(payload);
                bytes.extend_from_slice(&key.code(header, payload).to_bytes());
            }
        }
        entries.push(Entry { start, len_bytes: bytes.len() - start, target });
        Ok(Sent::Taken)
    }

    /// Queues one frame, without a code, for each of `targets`, of which there are at most [`COPIES_MAX`]: its bytes once,
    /// and for up to 32 of them one system call. All go out with [`DatagramSocket::flush`], or when the queue is full; on
    /// `Full` none is queued.
    ///
    /// # Errors
    /// As [`DatagramSocket::send`].
    ///
    /// # Panics
    /// If there are more targets.
    pub fn send_copies(
        &mut self,
        targets: &[SocketAddr],
        header: &[u8; HEADER_BYTES],
        payload: &[u8],
    ) -> Result<Sent, SendError> {
        assert!(targets.len() <= COPIES_MAX, "{} copies", targets.len());
        check_announced(header, payload, DATAGRAM_PAYLOAD_BYTES_MAX)?;
        let is_too_full = self.queue.entries.len() + targets.len() > QUEUED_FRAMES_MAX;
        if is_too_full && self.flush() == Sent::Full {
            return Ok(Sent::Full);
        }
        let Queue { bytes, entries } = &mut self.queue;
        let start = bytes.len();
        if !targets.is_empty() {
            bytes.extend_from_slice(header);
            bytes.extend_from_slice(payload);
        }
        let len_bytes = bytes.len() - start;
        entries.extend(targets.iter().map(|target| Entry {
            start,
            len_bytes,
            target: Some(*target),
        }));
        Ok(Sent::Taken)
    }

    /// Gives the queued frames to the kernel. Frames that it refuses for good are dropped and
    /// counted, as if the network had lost them. If it lacks room, the rest stays queued.
    pub fn flush(&mut self) -> Sent {
        let mut done = 0;
        if let Some(count) = self.send_past_stack() {
            self.queue.drop_first(count);
            return if self.wants_write() { Sent::Full } else { Sent::Taken };
        }
        let outcome = loop {
            if done == self.queue.entries.len() {
                break Sent::Taken;
            }
            match self.send_batch(done) {
                Ok(frames) => done += frames,
                Err(Errno::AGAIN | Errno::NOBUFS) => break Sent::Full,
                Err(Errno::INTR) => {}
                Err(Errno::IO | Errno::INVAL | Errno::MSGSIZE) if self.sends_trains => {
                    // The device can't send trains, or its MTU is below Ethernet's.
                    self.sends_trains = false;
                }
                Err(_) => {
                    // The error of an earlier datagram (nobody listens there), or there is no
                    // route.
                    self.stats.unsent += 1;
                    done += 1;
                }
            }
        };
        self.queue.drop_first(done);
        outcome
    }

    /// Sends all queued frames past the network stack; how many were taken. None if they are to go through it.
    fn send_past_stack(&mut self) -> Option<usize> {
        let (Some(port), Some(SocketAddr::V4(peer))) =
            (self.bypass.as_mut().and_then(|it| it.port()), self.peer)
        else {
            return None;
        };
        let Queue { bytes, entries } = &self.queue;
        if !port.flush() {
            return Some(0);
        }
        if entries.is_empty() {
            return None;
        }
        let count = port.send(peer, entries, bytes, self.sends_trains)?;
        self.stats.send_calls += 1;
        self.stats.sent += count as u64;
        Some(count)
    }

    /// One system call, from the `first` queued frame on; how many frames the kernel took.
    fn send_batch(&mut self, first: usize) -> Result<usize, Errno> {
        match self.queue.entries.len() - first {
            1 => self.send_one(first),
            _ => self.send_up_to::<BATCH>(first),
        }
    }

    /// `send` and `sendto` cost less than `sendmmsg`.
    fn send_one(&mut self, first: usize) -> Result<usize, Errno> {
        let Entry { start, len_bytes, target } = self.queue.entries[first];
        let bytes = &self.queue.bytes[start..start + len_bytes];
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        self.stats.send_calls += 1;
        match target {
            None => send(&self.socket, bytes, flags)?,
            Some(target) => sendto(&self.socket, bytes, flags, &target)?,
        };
        self.stats.sent += 1;
        Ok(1)
    }

    fn send_up_to<const ROOM: usize>(&mut self, first: usize) -> Result<usize, Errno> {
        let Queue { bytes, entries } = &self.queue;
        let nothing = Outgoing { bytes: &[], target: None, segment_bytes: None };
        let mut messages = [nothing; ROOM];
        let mut frames = [0; ROOM];
        let (mut count, mut next) = (0, first);
        while count < ROOM && next < entries.len() {
            let length = if self.sends_trains { train(&entries[next..]) } else { 1 };
            let (head, tail) = (entries[next], entries[next + length - 1]);
            messages[count] = Outgoing {
                bytes: &bytes[head.start..tail.start + tail.len_bytes],
                target: head.target,
                segment_bytes: (length > 1).then_some(head.len_bytes as u16),
            };
            frames[count] = length;
            count += 1;
            next += length;
        }
        self.stats.send_calls += 1;
        let sent = sys::send(self.socket.as_fd(), &messages[..count])?;
        let sent_frames = frames[..sent].iter().sum();
        self.stats.sent += sent_frames as u64;
        Ok(sent_frames)
    }

    /// The next frame that has arrived, or `None`. Datagrams that are no frames are dropped and
    /// counted.
    ///
    /// # Errors
    /// If the system can't receive. Errors about datagrams sent earlier are ignored.
    pub fn receive(&mut self) -> Result<Option<Datagram<'_>>, OsError> {
        loop {
            let Some((message, range)) = self.inbox.next_piece() else {
                if !self.refill()? {
                    return Ok(None);
                }
                continue;
            };
            let Some((header, code)) = take_apart(&self.inbox.buffers[message][range.clone()])
            else {
                self.stats.garbage += 1;
                continue;
            };
            self.stats.received += 1;
            let behind_header = &self.inbox.buffers[message][range][HEADER_BYTES..];
            let payload = &behind_header[..header.payload_bytes()];
            let source = self.inbox.messages[message].source;
            return Ok(Some(Datagram { frame: Frame { header, payload, code }, source }));
        }
    }

    /// Whether a datagram is there for [`DatagramSocket::receive`], which may turn out to be
    /// garbage. Asks the kernel if nothing was left.
    ///
    /// # Errors
    /// As [`DatagramSocket::receive`].
    pub fn has_arrived(&mut self) -> Result<bool, OsError> {
        Ok(self.inbox.holds_more() || self.refill()?)
    }

    /// Receives a batch; false if nothing came. After a call that received fewer messages than it
    /// asked for, nothing was left, so the next system call is skipped. A caller that waits for the
    /// socket to become readable misses nothing; a caller that polls asks again at once.
    fn refill(&mut self) -> Result<bool, OsError> {
        if std::mem::take(&mut self.inbox.is_drained) {
            return Ok(false);
        }
        if let Some(bypass) = &mut self.bypass {
            if let Some((len_bytes, source)) = bypass.receive(&mut self.inbox.buffers[0], self.peer)
            {
                let source = self.inbox.only_source.unwrap_or(source);
                self.stats.past_stack += 1;
                self.note_one(len_bytes, source);
                return Ok(true);
            }
            if !bypass.is_socket_due() {
                return Ok(false);
            }
        }
        let has_come = self.refill_from_socket()?;
        if let (Some(bypass), true) = (&mut self.bypass, has_come) {
            bypass.expect_socket();
        }
        Ok(has_come)
    }

    fn refill_from_socket(&mut self) -> Result<bool, OsError> {
        let mut errors = 0;
        loop {
            self.stats.receive_calls += 1;
            let received = match self.inbox.only_source {
                Some(source) => self.receive_one(source),
                None => self.receive_batch(),
            };
            match received {
                Ok(count) => return Ok(count > 0),
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => {}
                // Errors about earlier datagrams, for instance that nobody listens there. Each is told once; a sandbox that
                // forbids the call refuses it for ever.
                Err(
                    Errno::CONNREFUSED
                    | Errno::HOSTUNREACH
                    | Errno::NETUNREACH
                    | Errno::MSGSIZE
                    | Errno::PERM,
                ) if errors < ERRORS_OF_EARLIER_MAX => errors += 1,
                Err(error) => return Err(error.into()),
            }
        }
    }

    fn receive_one(&mut self, source: SocketAddr) -> Result<usize, Errno> {
        let buffer = &mut self.inbox.buffers[0][..];
        let (len_bytes, _) = recv(&self.socket, &mut *buffer, RecvFlags::DONTWAIT)?;
        self.note_one(len_bytes, source);
        Ok(1)
    }

    /// Notes the one message in the first buffer. Nobody has told how long the datagrams of a train are; the first
    /// header does.
    fn note_one(&mut self, len_bytes: usize, source: SocketAddr) {
        let received = &self.inbox.buffers[0][..len_bytes];
        let segment_bytes = announced_bytes(received).unwrap_or(len_bytes).min(len_bytes);
        self.inbox.note_one(len_bytes, segment_bytes, source);
    }

    fn receive_batch(&mut self) -> Result<usize, Errno> {
        self.inbox.make_room();
        let asks = self.inbox.asks;
        let Inbox { buffers, messages, .. } = &mut self.inbox;
        let count = sys::receive(self.socket.as_fd(), &mut buffers[..asks], messages)?;
        self.inbox.count = count;
        (self.inbox.next, self.inbox.offset) = (0, 0);
        // The kernel stops early when nothing is left.
        self.inbox.is_drained = count < asks;
        // A socket with many senders often receives from several at once.
        self.inbox.asks = if count < FEW { FEW } else { RECEIVE_BATCH };
        Ok(count)
    }

    /// Whether [`DatagramSocket::receive`] has not handed out all received frames.
    #[must_use]
    pub fn holds_more(&self) -> bool {
        self.inbox.holds_more()
    }

    /// Whether queued frames wait for room in the kernel.
    #[must_use]
    pub fn wants_write(&self) -> bool {
        !self.queue.entries.is_empty() || self.bypass.as_ref().is_some_and(|it| it.has_unsent())
    }

    /// From now on the kernel drops frames that show none of `capabilities` as it does what is no frame, before this
    /// process is woken for them. Not all of a capability is compared, so what is received has to be judged as before.
    ///
    /// A train that begins with such a frame is dropped whole. Only who forges the source of a peer can make one of that
    /// peer's frames.
    ///
    /// # Errors
    /// If they are more than [`FILTERED_CAPABILITIES_MAX`](super::FILTERED_CAPABILITIES_MAX) or the kernel refuses. Then
    /// it drops what it dropped before.
    pub fn queue_holders(
        &mut self,
        capabilities: impl IntoIterator<Item = Capability>,
    ) -> Result<(), OsError> {
        Ok(filter::queue_holders(self.socket.as_fd(), capabilities)?)
    }

    /// Ends what [`DatagramSocket::queue_holders`] began: from now on all frames are received.
    ///
    /// # Errors
    /// If the kernel neither takes another filter nor gives up the one that it has.
    pub fn queue_frames(&mut self) -> Result<(), OsError> {
        Ok(filter::queue_frames(self.socket.as_fd())?)
    }

    /// Counts what the kernel drops at this socket.
    #[must_use]
    pub fn drop_counter(&self) -> Unqueued {
        Unqueued::of(Arc::downgrade(&self.socket))
    }

    /// Counters since the socket was made.
    #[must_use]
    pub fn stats(&self) -> DatagramStats {
        self.stats
    }
}

impl AsFd for DatagramSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Length of the frame at the start of `bytes` by its header, including its code.
fn announced_bytes(bytes: &[u8]) -> Option<usize> {
    let header = bytes.first_chunk::<HEADER_BYTES>()?;
    let code_bytes = if announces_code(header) { CODE_BYTES } else { 0 };
    let header = Header::decode(&without_code(*header)).ok()?;
    Some(HEADER_BYTES + header.payload_bytes() + code_bytes)
}

/// The header and the code of a datagram that is one whole frame.
fn take_apart(datagram: &[u8]) -> Option<(Header, Option<AuthenticationCode>)> {
    let (bytes, behind_header) = datagram.split_first_chunk::<HEADER_BYTES>()?;
    if !announces_code(bytes) {
        let header = Header::decode(bytes).ok()?;
        return (header.payload_bytes() == behind_header.len()).then_some((header, None));
    }
    let header = Header::decode(&without_code(*bytes)).ok()?;
    let (payload, code) = behind_header.split_last_chunk::<CODE_BYTES>()?;
    let is_whole = header.payload_bytes() == payload.len();
    is_whole.then_some((header, Some(AuthenticationCode::from_bytes(*code))))
}

fn os(call: &'static str) -> impl Fn(Errno) -> ListenError {
    move |error| ListenError::Os { call, error: error.into() }
}

fn listen_error(call: &'static str, error: &io::Error) -> ListenError {
    match Errno::from_io_error(error) {
        Some(Errno::ADDRINUSE) => ListenError::InUse,
        errno => ListenError::Os { call, error: errno.unwrap_or(Errno::IO).into() },
    }
}
