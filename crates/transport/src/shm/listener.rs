//! The accepting side: a Unix socket, and connectors whose greeting is not complete.

use std::collections::VecDeque;
use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::epoll;
use rustix::fs::{Mode, fchmod, stat, unlink};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags,
    SocketAddrUnix, SocketFlags, accept_with, bind, connect, listen, recvmsg,
};
use tributary_inheritance::Uninherited;

use super::ShmOptions;
use super::hello::{HELLO_BYTES, admit};
use super::link::{End, ShmLink};
use crate::socket::{is_lost_connection, stream};
use crate::{AcceptError, HandshakeError, ListenError, Listener};

/// Connectors that may be half-open at once. The oldest makes room for a newer one: an honest
/// connector sends its greeting right after connecting, so it is never old.
pub const HALF_OPEN_MAX: usize = 64;

/// Connections that may wait for [`ShmListener::accept`].
const BACKLOG: i32 = 1024;

/// Accepts links over shared memory, at a Unix socket with a path.
///
/// Its descriptor is an epoll instance over the socket and the half-open connectors.
pub struct ShmListener {
    epoll: OwnedFd,
    socket: Uninherited<OwnedFd>,
    bound: Bound,
    options: ShmOptions,
    handshake_max: Duration,
    /// Oldest first, so that deadlines ascend.
    half_open: VecDeque<HalfOpen>,
}

/// A connector whose greeting isn't complete.
struct HalfOpen {
    socket: Uninherited<OwnedFd>,
    deadline: Instant,
    hello: [u8; HELLO_BYTES],
    hello_bytes: usize,
    memory: Option<OwnedFd>,
}

/// The socket's place in the file system, removed when dropped if it is still this socket's.
struct Bound {
    path: PathBuf,
    identity: Option<(u64, u64)>,
}

impl ShmListener {
    /// Listens at `path`, with the permission bits `mode` (`0o600`: this user's processes only).
    /// Connectors have `handshake_max` to complete their greeting.
    ///
    /// A socket that a dead process left at `path` is replaced.
    ///
    /// # Errors
    /// If somebody listens at `path`, or the socket can't be made.
    pub fn bind(
        path: &Path,
        mode: u32,
        options: ShmOptions,
        handshake_max: Duration,
    ) -> Result<Self, ListenError> {
        let address = SocketAddrUnix::new(path).map_err(|_| ListenError::PathTooLong)?;
        let socket = stream(AddressFamily::UNIX).map_err(os("socket"))?;
        // Before `bind`, which gives the file the socket's mode: so it is never open to others.
        fchmod(&socket, Mode::from_raw_mode(mode)).map_err(os("fchmod"))?;
        bind_or_replace(&socket, &address, path)?;
        let bound = Bound { path: path.to_owned(), identity: identity(path) };
        listen(&socket, BACKLOG).map_err(os("listen"))?;
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).map_err(os("epoll_create"))?;
        watch(&epoll, &socket).map_err(os("epoll_ctl"))?;
        let half_open = VecDeque::with_capacity(HALF_OPEN_MAX);
        let socket = Uninherited::new(socket);
        Ok(Self { epoll, socket, bound, options, handshake_max, half_open })
    }

    /// Where it listens.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.bound.path
    }

    /// Takes one connection from the queue; false if there is none.
    fn admit_connection(&mut self, now: Instant) -> Result<bool, AcceptError> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = match accept_with(&self.socket, flags) {
            Ok(socket) => socket,
            Err(Errno::AGAIN) => return Ok(false),
            Err(error) if is_lost_connection(error) => return Ok(true),
            Err(error) => return Err(AcceptError::Os { call: "accept", error: error.into() }),
        };
        watch(&self.epoll, &socket)
            .map_err(|error| AcceptError::Os { call: "epoll_ctl", error: error.into() })?;
        let evicted = self.half_open.len() == HALF_OPEN_MAX;
        if evicted {
            self.half_open.pop_front();
        }
        self.half_open.push_back(HalfOpen {
            socket: Uninherited::new(socket),
            deadline: now + self.handshake_max,
            hello: [0; HELLO_BYTES],
            hello_bytes: 0,
            memory: None,
        });
        if evicted { Err(HandshakeError::Evicted.into()) } else { Ok(true) }
    }

    /// Reads from the half-open connectors until one completes its greeting or fails.
    fn advance(&mut self) -> Result<Option<ShmLink>, AcceptError> {
        for index in 0..self.half_open.len() {
            let outcome = self.half_open[index].read_hello();
            if outcome == Ok(false) {
                continue;
            }
            let half = self.half_open.remove(index).expect("the index is in range");
            // The link's owner watches the socket from here on.
            let _ = epoll::delete(&self.epoll, &half.socket);
            outcome?;
            return self.finish(half).map(Some).map_err(AcceptError::Refused);
        }
        Ok(None)
    }

    fn finish(&self, half: HalfOpen) -> Result<ShmLink, HandshakeError> {
        let memory = half.memory.ok_or(HandshakeError::DescriptorCount(0))?;
        let (mapping, payload_max_bytes) = admit(&half.hello, &memory, &self.options)?;
        Ok(ShmLink::new(&mapping, half.socket, End::Acceptor, payload_max_bytes))
    }
}

fn os(call: &'static str) -> impl Fn(Errno) -> ListenError {
    move |error| ListenError::Os { call, error: error.into() }
}

fn watch(epoll: &OwnedFd, socket: &OwnedFd) -> Result<(), Errno> {
    epoll::add(epoll, socket, epoll::EventData::new_u64(0), epoll::EventFlags::IN)
}

/// Device and inode, which tell whether a path still leads to the same file.
fn identity(path: &Path) -> Option<(u64, u64)> {
    stat(path).ok().map(|status| (status.st_dev, status.st_ino))
}

fn bind_or_replace(
    socket: &OwnedFd,
    address: &SocketAddrUnix,
    path: &Path,
) -> Result<(), ListenError> {
    match bind(socket, address) {
        Err(Errno::ADDRINUSE) => {}
        other => return other.map_err(os("bind")),
    }
    let probe = stream(AddressFamily::UNIX).map_err(os("socket"))?;
    // Only a socket whose listener is gone refuses; a file of another kind does not count as one.
    if connect(&probe, address) != Err(Errno::CONNREFUSED) || !is_socket(path) {
        return Err(ListenError::InUse);
    }
    unlink(path).map_err(os("unlink"))?;
    bind(socket, address).map_err(os("bind"))
}

fn is_socket(path: &Path) -> bool {
    stat(path).is_ok_and(|status| {
        rustix::fs::FileType::from_raw_mode(status.st_mode) == rustix::fs::FileType::Socket
    })
}

impl HalfOpen {
    /// Reads as much of the greeting as there is; true once it is complete.
    fn read_hello(&mut self) -> Result<bool, HandshakeError> {
        while self.hello_bytes < HELLO_BYTES {
            // Room for a second descriptor, to detect a connector that passes more than one.
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let mut slices = [IoSliceMut::new(&mut self.hello[self.hello_bytes..])];
            let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
            let got = match recvmsg(&self.socket, &mut slices, &mut control, flags) {
                Ok(got) if got.bytes == 0 => return Err(HandshakeError::Closed),
                Ok(got) => got,
                Err(Errno::AGAIN) => return Ok(false),
                Err(Errno::INTR) => continue,
                Err(Errno::CONNRESET) => return Err(HandshakeError::Closed),
                Err(error) => return Err(HandshakeError::Os(error.into())),
            };
            self.hello_bytes += got.bytes;
            self.keep_descriptor(&mut control, got.flags)?;
        }
        Ok(true)
    }

    fn keep_descriptor(
        &mut self,
        control: &mut RecvAncillaryBuffer<'_>,
        flags: ReturnFlags,
    ) -> Result<(), HandshakeError> {
        let mut count = usize::from(self.memory.is_some());
        if flags.contains(ReturnFlags::CTRUNC) {
            count += 1;
        }
        for message in control.drain() {
            let RecvAncillaryMessage::ScmRights(descriptors) = message else { continue };
            for descriptor in descriptors {
                count += 1;
                self.memory = Some(descriptor);
            }
        }
        if count > 1 { Err(HandshakeError::DescriptorCount(count)) } else { Ok(()) }
    }
}

impl AsFd for ShmListener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl Listener for ShmListener {
    type Link = ShmLink;

    fn accept(&mut self, now: Instant) -> Result<Option<ShmLink>, AcceptError> {
        // This ends: the queue holds `BACKLOG`, and after `HALF_OPEN_MAX` in a row it is an error.
        let admitted = loop {
            match self.admit_connection(now) {
                Ok(true) => {}
                Ok(false) => break Ok(None),
                // Those who are here already are served and given up all the same, which frees what is lacking.
                Err(error @ AcceptError::Os { .. }) => break Err(error),
                Err(refused) => return Err(refused),
            }
        };
        if let Some(link) = self.advance()? {
            return Ok(Some(link));
        }
        if self.half_open.pop_front_if(|oldest| oldest.deadline <= now).is_some() {
            return Err(HandshakeError::TimedOut.into());
        }
        admitted
    }

    fn deadline(&self) -> Option<Instant> {
        self.half_open.front().map(|oldest| oldest.deadline)
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if self.identity.is_some() && identity(&self.path) == self.identity {
            let _ = unlink(&self.path);
        }
    }
}
