//! The link itself: a socket, a receive buffer, and the rest of a frame that the kernel took
//! partly.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    RecvFlags, SendAncillaryBuffer, SendFlags, Shutdown, getpeername, getsockname, recv, send,
    sendmsg, shutdown, sockopt,
};
use tributary_inheritance::Uninherited;
use tributary_wire::frame::{CODE_BYTES, HEADER_BYTES, PAYLOAD_BYTES_MAX, announcing_code};

use super::input::{Begun, Input};
use crate::link::check_announced;
use crate::socket::{HostProbes, is_closed};
use crate::{
    Armed, AuthenticationKey, Frame, Inject, Link, OptionsError, OsError, ReceiveError, SendError,
    Sent,
};

/// Room for short frames behind the longest, so that one read takes many.
const BATCH_BYTES: usize = 64 << 10;

/// Frames up to this length, with header and code, are copied into one piece to be sent.
const COPIED_BYTES_MAX: usize = 256;

/// Minimum retransmission timeout. Round trips in a fabric, including delays in the hosts, take
/// less; the kernel's default of 200 ms suits the internet.
const RETRANSMIT_AFTER_MIN: Duration = Duration::from_millis(5);
/// Longest time between two attempts to send again, so that a link recovers soon after an outage.
const RETRANSMIT_WITHIN: Duration = Duration::from_secs(1);

/// When a silent host is taken for gone: after 11 s. Where one probe in 25 gets no answer (a path of four links that
/// lose 0.5% each), giving up after 4 of them would end one of a hundred idle links every half an hour, and after 10
/// one in ten thousand years. A live member of a group may go for long without reading, so unacknowledged data say
/// nothing about its host.
const PROBES: HostProbes =
    HostProbes { interval: Duration::from_secs(1), probes_max: 10, unacknowledged_max: None };

/// Limits of a link over TCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpOptions {
    payload_max_bytes: u32,
}

impl TcpOptions {
    /// Options for payloads up to `payload_max_bytes`. A link's buffers hold at most two of them
    /// and 64 KiB.
    ///
    /// # Errors
    /// If no frame is that long.
    pub const fn new(payload_max_bytes: u32) -> Result<Self, OptionsError> {
        if payload_max_bytes as usize > PAYLOAD_BYTES_MAX {
            return Err(OptionsError::PayloadMax { payload_max_bytes });
        }
        Ok(Self { payload_max_bytes })
    }

    /// Longest payload.
    #[must_use]
    pub const fn payload_max_bytes(&self) -> u32 {
        self.payload_max_bytes
    }
}

/// One end of a link over TCP.
pub struct TcpLink {
    socket: Uninherited<OwnedFd>,
    input: Input,
    output: Output,
    payload_max_bytes: u32,
    /// Authenticates every frame in both directions; none if frames carry no codes.
    key: Option<AuthenticationKey>,
    /// How many frames there were in each direction, where codes tell their order.
    order: Option<Order>,
    /// The last read found the socket empty.
    drained: bool,
    /// `send` last said `Full`.
    lacked_room: bool,
    receive_failed: Option<ReceiveError>,
    send_failed: Option<SendError>,
}

/// Frames so far on a link whose codes tell the order of its frames.
#[derive(Clone, Copy)]
struct Order {
    sent: u64,
    received: u64,
}

/// The rest of a frame that the kernel took partly.
struct Output {
    buffer: Vec<u8>,
    sent_bytes: usize,
}

impl Output {
    fn rest(&self) -> &[u8] {
        &self.buffer[self.sent_bytes..]
    }

    fn is_empty(&self) -> bool {
        self.sent_bytes == self.buffer.len()
    }

    /// Keeps the part of a frame's `pieces` that the kernel didn't take. It fits the capacity
    /// reserved for the longest frame, so nothing is allocated (except after `inject` of more than
    /// a frame).
    fn keep(&mut self, pieces: [&[u8]; 3], mut taken_bytes: usize) {
        self.buffer.clear();
        self.sent_bytes = 0;
        for piece in pieces {
            let skipped_bytes = taken_bytes.min(piece.len());
            self.buffer.extend_from_slice(&piece[skipped_bytes..]);
            taken_bytes -= skipped_bytes;
        }
    }
}

impl TcpLink {
    /// Takes over a non-blocking socket that is connected or connecting.
    pub(super) fn new(socket: OwnedFd, options: TcpOptions) -> Result<Self, Errno> {
        sockopt::set_tcp_nodelay(&socket, true)?;
        PROBES.set(socket.as_fd())?;
        super::sys::set_retransmit_after_min(socket.as_fd(), RETRANSMIT_AFTER_MIN)?;
        super::sys::set_retransmit_within(socket.as_fd(), RETRANSMIT_WITHIN)?;
        let payload_max_bytes = options.payload_max_bytes;
        let frame_bytes_max = HEADER_BYTES + payload_max_bytes as usize + CODE_BYTES;
        Ok(Self {
            socket: Uninherited::new(socket),
            input: Input::new(payload_max_bytes, BATCH_BYTES),
            output: Output { buffer: Vec::with_capacity(frame_bytes_max), sent_bytes: 0 },
            payload_max_bytes,
            key: None,
            order: None,
            drained: false,
            lacked_room: false,
            receive_failed: None,
            send_failed: None,
        })
    }

    /// Segments that the kernel has sent again so far.
    #[must_use]
    pub fn retransmissions(&self) -> u32 {
        super::sys::retransmissions(self.as_fd())
    }

    /// The shortest round trip over this link in the last minutes, if the kernel knows one.
    #[must_use]
    pub fn round_trip(&self) -> Option<Duration> {
        super::sys::round_trip(self.as_fd())
    }

    /// Authenticates every frame from now on: puts a code made with `key` behind each frame sent,
    /// and fails the link at a received frame without a valid code.
    pub fn authenticate(&mut self, key: AuthenticationKey) {
        self.key = Some(key);
    }

    /// As [`authenticate`](Self::authenticate), and codes also tell the order of each direction's frames, so that
    /// none counts twice or in another's place. Before this end has sent anything, and after it has
    /// received `received` frames, whose codes the caller has checked
    /// ([`AuthenticationKey::for_frame_number`], from 0).
    pub fn authenticate_in_order(&mut self, key: AuthenticationKey, received: u64) {
        self.authenticate(key);
        self.order = Some(Order { sent: 0, received });
    }

    pub(super) fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    /// The address of this end.
    ///
    /// # Errors
    /// If the link is gone, or the system doesn't say.
    pub fn local_address(&self) -> Result<SocketAddr, OsError> {
        Ok(getsockname(&self.socket)?.try_into()?)
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// If the link is gone, or the system doesn't say.
    pub fn peer_address(&self) -> Result<SocketAddr, OsError> {
        Ok(getpeername(&self.socket)?.ok_or(Errno::NOTCONN)?.try_into()?)
    }

    /// Bytes given to the kernel that the peer's kernel has not acknowledged; zero once the
    /// connection is over. The peer can still read acknowledged bytes after this end is closed,
    /// even if unread input makes the kernel reset the connection.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> usize {
        let mut fds = [PollFd::new(&self.socket, PollFlags::empty())];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // `poll` reports errors and hang-ups without being asked.
        if poll(&mut fds, Some(&now)) != Ok(0) {
            return 0;
        }
        super::sys::unacknowledged_bytes(self.socket.as_fd())
    }

    fn fail_send(&mut self, errno: Errno) -> SendError {
        let error = if is_closed(errno) { SendError::Closed } else { SendError::Os(errno.into()) };
        *self.send_failed.insert(error)
    }

    fn refuse_not_authentic(&mut self) -> ReceiveError {
        let peer = self.peer_address().ok();
        self.fail_receive(ReceiveError::NotAuthentic { peer })
    }

    fn fail_receive(&mut self, error: ReceiveError) -> ReceiveError {
        *self.receive_failed.insert(error)
    }

    /// Sends the rest of the frame that the kernel took partly.
    fn send_rest(&mut self) -> Result<Sent, SendError> {
        if let Some(error) = self.send_failed {
            return Err(error);
        }
        while !self.output.is_empty() {
            match send(&self.socket, self.output.rest(), SendFlags::DONTWAIT | SendFlags::NOSIGNAL)
            {
                Ok(sent) => self.output.sent_bytes += sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Sent::Full),
                Err(error) => return Err(self.fail_send(error)),
            }
        }
        Ok(Sent::Taken)
    }

    /// Gives a frame's pieces to the kernel. Keeps the rest of a frame that the kernel took partly.
    fn send_gathered(&mut self, pieces: [&[u8]; 3]) -> Result<Sent, SendError> {
        if self.send_rest()? == Sent::Full {
            self.lacked_room = true;
            return Ok(Sent::Full);
        }
        let sent = loop {
            match send_pieces(self.socket.as_fd(), pieces) {
                Ok(sent) => break sent,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => {
                    self.lacked_room = true;
                    return Ok(Sent::Full);
                }
                Err(error) => return Err(self.fail_send(error)),
            }
        };
        if sent < pieces.iter().map(|piece| piece.len()).sum() {
            self.output.keep(pieces, sent);
        }
        self.lacked_room = false;
        Ok(Sent::Taken)
    }

    /// Reads until the next frame is complete or the socket is empty. No frame is held.
    fn next_header(&mut self) -> Result<Option<Begun>, ReceiveError> {
        if let Some(error) = self.receive_failed {
            return Err(error);
        }
        loop {
            match self.input.complete() {
                Ok(None) => {}
                Ok(found) => return Ok(found),
                Err(error) => return Err(self.fail_receive(error)),
            }
            if !self.read()? {
                return Ok(None);
            }
        }
    }

    /// One read; false if the socket was empty.
    fn read(&mut self) -> Result<bool, ReceiveError> {
        let room = match self.input.room() {
            Ok(room) => room,
            Err(error) => return Err(self.fail_receive(error)),
        };
        match recv(&self.socket, room, RecvFlags::DONTWAIT) {
            Ok((0, _)) => {
                let error = self.input.closing_error();
                return Err(self.fail_receive(error));
            }
            Ok((got, _)) => {
                self.input.add_filled(got);
                self.drained = false;
            }
            Err(Errno::AGAIN) => {
                self.drained = true;
                return Ok(false);
            }
            Err(Errno::INTR) => {}
            Err(errno) if is_closed(errno) => {
                let error = self.input.closing_error();
                return Err(self.fail_receive(error));
            }
            Err(errno) => return Err(self.fail_receive(ReceiveError::Os(OsError::from(errno)))),
        }
        Ok(true)
    }

    /// Whether room has appeared since `send` said `Full`. Reported once.
    fn has_regained_room(&mut self) -> bool {
        if !self.lacked_room || !self.output.is_empty() {
            return false;
        }
        let mut fds = [PollFd::new(&self.socket, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // An error of `poll` counts as room: `send` then reports what is wrong.
        let regained = poll(&mut fds, Some(&now)) != Ok(0);
        self.lacked_room = !regained;
        regained
    }
}

/// Gives pieces to the kernel as one. Short ones are copied first, which costs less than gathering.
fn send_pieces(socket: BorrowedFd<'_>, pieces: [&[u8]; 3]) -> Result<usize, Errno> {
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut whole = [0; COPIED_BYTES_MAX];
    let mut copied = 0;
    for piece in pieces {
        let Some(room) = whole.get_mut(copied..copied + piece.len()) else {
            let mut control = SendAncillaryBuffer::default();
            return sendmsg(socket, &pieces.map(IoSlice::new), &mut control, flags);
        };
        room.copy_from_slice(piece);
        copied += piece.len();
    }
    send(socket, &whole[..copied], flags)
}

impl AsFd for TcpLink {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Link for TcpLink {
    fn has_delivered(&self) -> bool {
        self.unacknowledged_bytes() == 0
    }

    fn send(&mut self, header: &[u8; HEADER_BYTES], payload: &[u8]) -> Result<Sent, SendError> {
        check_announced(header, payload, self.payload_max_bytes)?;
        let Some(key) = self.key else { return self.send_gathered([header, payload, &[]]) };
        let key = self.order.map_or(key, |order| key.for_frame_number(order.sent));
        let code = key.code(header, payload).to_bytes();
        let sent = self.send_gathered([&announcing_code(*header), payload, &code])?;
        if let Some(order) = self.order.as_mut().filter(|_| sent == Sent::Taken) {
            order.sent += 1;
        }
        Ok(sent)
    }

    fn flush(&mut self) -> Result<Sent, SendError> {
        self.send_rest()
    }

    fn receive(&mut self) -> Result<Option<Frame<'_>>, ReceiveError> {
        self.input.release();
        let Some(begun) = self.next_header()? else { return Ok(None) };
        if let Some(key) = self.key {
            let key = self.order.map_or(key, |order| key.for_frame_number(order.received));
            if !key.authenticates(&self.input.frame(&begun)) {
                return Err(self.refuse_not_authentic());
            }
            if let Some(order) = &mut self.order {
                order.received += 1;
            }
        }
        Ok(Some(self.input.take(&begun)))
    }

    fn release(&mut self) {
        self.input.release();
    }

    fn is_ready(&mut self) -> bool {
        self.input.release();
        // The link remembers a failure here, and the next call that can returns it.
        let _ = self.send_rest();
        !matches!(self.next_header(), Ok(None)) || self.has_regained_room()
    }

    fn arm(&mut self) -> Armed {
        // `is_ready` returns false only after a read has found the socket empty. So bytes that come
        // later make it readable, and the peer need not know that this side sleeps.
        if self.is_ready() {
            return Armed::Ready;
        }
        debug_assert!(self.drained);
        Armed::Asleep
    }

    fn disarm(&mut self) {}

    fn wants_write(&self) -> bool {
        self.send_failed.is_none() && (self.lacked_room || !self.output.is_empty())
    }

    fn payload_max_bytes(&self) -> u32 {
        self.payload_max_bytes
    }

    fn shutdown(&mut self) {
        let _ = shutdown(&self.socket, Shutdown::Both);
        self.send_failed.get_or_insert(SendError::Closed);
    }
}

impl Inject for TcpLink {
    fn inject(&mut self, bytes: &[u8]) -> Result<Sent, SendError> {
        self.send_gathered([bytes, &[], &[]])
    }
}
