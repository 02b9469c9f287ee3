//! Errors: why links are not made, and why they fail.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use rustix::io::Errno;
use tributary_wire::frame::{DecodeError, PAYLOAD_BYTES_MAX};

/// An error number of the operating system.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct OsError(i32);

impl OsError {
    /// The number (`errno`).
    #[must_use]
    pub const fn code(self) -> i32 {
        self.0
    }
}

impl From<Errno> for OsError {
    fn from(errno: Errno) -> Self {
        Self(errno.raw_os_error())
    }
}

impl fmt::Display for OsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        io::Error::from_raw_os_error(self.0).fmt(out)
    }
}

impl fmt::Debug for OsError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "OsError({}: {self})", self.0)
    }
}

fn describe(peer: Option<SocketAddr>) -> String {
    peer.map_or_else(|| "a peer that is gone".to_owned(), |peer| peer.to_string())
}

/// Why a frame was not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// The caller's payload is longer than this link carries. The link lives on.
    #[error("a payload of {payload_bytes} bytes exceeds the {max_bytes} this link carries")]
    TooLong {
        /// Length of the payload.
        payload_bytes: usize,
        /// The link's limit.
        max_bytes: u32,
    },
    /// The caller's header isn't one, or announces another length. The link lives on.
    #[error("the header does not announce a payload of {payload_bytes} bytes")]
    HeaderMismatch {
        /// Length of the payload.
        payload_bytes: usize,
    },
    /// The peer is gone.
    #[error("the peer closed the link")]
    Closed,
    /// The peer claims to have consumed more than it was sent, or less than it claimed before.
    #[error("the peer claims to have consumed {claimed_bytes} of {sent_bytes} bytes sent")]
    BadPeerIndex {
        /// Bytes that the peer claims to have consumed, in all.
        claimed_bytes: u64,
        /// Bytes that it was sent, in all.
        sent_bytes: u64,
    },
    /// The operating system.
    #[error("sending failed: {0}")]
    Os(OsError),
}

/// Why nothing more can be received. The peer or the network is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReceiveError {
    /// The peer is gone, after a whole frame.
    #[error("the peer closed the link")]
    Closed,
    /// The peer is gone, in the middle of a frame.
    #[error("the peer closed the link after {got_bytes} bytes of a frame of {need_bytes}")]
    Truncated {
        /// Bytes of the frame that arrived.
        got_bytes: usize,
        /// Bytes needed: the frame's length, or a header's if the header is not complete.
        need_bytes: usize,
    },
    /// The peer sent something that is no frame.
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// The peer announced more than this link carries.
    #[error("the peer announced {announced_bytes} bytes, this link carries {max_bytes}")]
    TooLong {
        /// What it announced.
        announced_bytes: usize,
        /// The link's limit.
        max_bytes: u32,
    },
    /// A frame came over an authenticated link with no code or a wrong one: the peer
    /// does not hold the group's key, or the frame was altered on its way.
    #[error("a frame from {} has no valid authentication code", describe(*.peer))]
    NotAuthentic {
        /// The other end of the link, unless the connection is over.
        peer: Option<SocketAddr>,
    },
    /// The operating system.
    #[error("receiving failed: {0}")]
    Os(OsError),
}

/// Why a link's options are invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OptionsError {
    /// A longer payload than any frame has.
    #[error("payloads of {payload_max_bytes} bytes exceed the {PAYLOAD_BYTES_MAX} of a frame")]
    PayloadMax {
        /// What was asked for.
        payload_max_bytes: u32,
    },
    /// Rings that can't hold the payload or can't be mapped.
    #[error("rings of {ring_bytes} bytes: need a power of two from {min_bytes} to {max_bytes}")]
    RingBytes {
        /// What was asked for.
        ring_bytes: usize,
        /// The smallest size that holds two of the longest frames.
        min_bytes: usize,
        /// The largest size.
        max_bytes: usize,
    },
}

/// Why a link was not made from the connecting side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// No answer came in time.
    #[error("no answer within {timeout:?}")]
    TimedOut {
        /// How long the connector waited.
        timeout: Duration,
    },
    /// The path of the socket is longer than the system allows.
    #[error("the socket's path is too long")]
    PathTooLong,
    /// The operating system.
    #[error("{call} failed: {error}")]
    Os {
        /// What was attempted.
        call: &'static str,
        /// What it said.
        error: OsError,
    },
}

/// Why a listener was not made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address or path is in use.
    #[error("somebody listens there already")]
    InUse,
    /// The path of the socket is longer than the system allows.
    #[error("the socket's path is too long")]
    PathTooLong,
    /// The operating system.
    #[error("{call} failed: {error}")]
    Os {
        /// What was attempted.
        call: &'static str,
        /// What it said.
        error: OsError,
    },
}

/// Why an attempt to accept made no link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// One connector was refused; it is at fault.
    #[error("a connector was refused: {0}")]
    Refused(#[from] HandshakeError),
    /// This side lacks descriptors or memory. Pause before the next attempt.
    #[error("{call} failed: {error}")]
    Os {
        /// What was attempted.
        call: &'static str,
        /// What it said.
        error: OsError,
    },
}

/// What was wrong with a connector over shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Its greeting was not complete before its deadline.
    #[error("no complete greeting in time")]
    TimedOut,
    /// Newer connectors evicted it before its greeting was complete.
    #[error("evicted by newer connectors")]
    Evicted,
    /// It closed before its greeting was complete.
    #[error("closed before its greeting was complete")]
    Closed,
    /// It doesn't speak this protocol.
    #[error("the greeting is not this protocol's")]
    BadMagic,
    /// It speaks another version.
    #[error("the greeting has version {0}")]
    BadVersion(u32),
    /// Its rings have a size this listener doesn't take.
    #[error("rings of {ring_bytes} bytes are not from {min_bytes} to {max_bytes}")]
    RingBytes {
        /// What it announced.
        ring_bytes: u64,
        /// The smallest size accepted.
        min_bytes: usize,
        /// The largest size accepted.
        max_bytes: usize,
    },
    /// It passed no descriptor, or more than one.
    #[error("it passed {0} descriptors instead of one")]
    DescriptorCount(usize),
    /// The descriptor is not ordinary shared memory with the seals that forbid resizing.
    #[error("the descriptor is not shared memory sealed against resizing")]
    NotSealedMemory,
    /// The memory has another size than the greeting says.
    #[error("the memory has {got_bytes} bytes, the greeting says {need_bytes}")]
    MemoryBytes {
        /// Its size.
        got_bytes: u64,
        /// The size it should have.
        need_bytes: u64,
    },
    /// The operating system wouldn't map it.
    #[error("mapping the memory failed: {0}")]
    Map(OsError),
    /// The operating system wouldn't read the greeting.
    #[error("reading the greeting failed: {0}")]
    Os(OsError),
}
