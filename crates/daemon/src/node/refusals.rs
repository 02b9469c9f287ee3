//! Names for what peers do wrong: one per counter, and one line in the log for each fault.

use std::time::{Duration, Instant};

use tributary_protocol::node::FrameError;
use tributary_transport::{AcceptError, ReceiveError};
use tributary_wire::frame::DecodeError;

/// Most lines about refused peers in one [`PERIOD`]: a peer must not be able to fill a disk.
const LINES_MAX: u32 = 20;

const PERIOD: Duration = Duration::from_secs(1);

/// Why a link was closed against the peer's will, as the metrics' label `reason` names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Truncated,
    Garbage,
    WrongVersion,
    BadField,
    Oversized,
    UnknownGroup,
    Forged,
    AlreadyJoined,
    WrongPort,
    WrongDirection,
    OutsideWindow,
    UnexpectedResult,
    NotReading,
    NeverJoined,
    Handshake,
    TooManyLinks,
    OutOfTurn,
    NotAuthentic,
}

/// Why a datagram was dropped, as the metrics' label `reason` names it. Its sender may be anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Its group's frames are sealed, and it has no code or a wrong one.
    NotAuthentic,
    /// It names no edge of this node, or shows another capability than the edge's.
    NoEdge,
    /// It comes from another address than the edge's peer announced.
    WrongSource,
    /// It breaks the protocol, or comes for a child that has left.
    Refused,
}

impl Dropped {
    /// Every reason.
    pub(super) const ALL: [Self; 4] =
        [Self::NotAuthentic, Self::NoEdge, Self::WrongSource, Self::Refused];

    /// The label's value.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::NotAuthentic => "not-authentic",
            Self::NoEdge => "no-edge",
            Self::WrongSource => "wrong-source",
            Self::Refused => "refused",
        }
    }
}

impl Reason {
    /// Every reason.
    pub(super) const ALL: [Self; 18] = [
        Self::Truncated,
        Self::Garbage,
        Self::WrongVersion,
        Self::BadField,
        Self::Oversized,
        Self::UnknownGroup,
        Self::Forged,
        Self::AlreadyJoined,
        Self::WrongPort,
        Self::WrongDirection,
        Self::OutsideWindow,
        Self::UnexpectedResult,
        Self::NotReading,
        Self::NeverJoined,
        Self::Handshake,
        Self::TooManyLinks,
        Self::OutOfTurn,
        Self::NotAuthentic,
    ];

    /// The label's value.
    pub(super) const fn label(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::Garbage => "garbage",
            Self::WrongVersion => "wrong-version",
            Self::BadField => "bad-field",
            Self::Oversized => "oversized",
            Self::UnknownGroup => "unknown-group",
            Self::Forged => "forged-capability",
            Self::AlreadyJoined => "already-joined",
            Self::WrongPort => "wrong-port",
            Self::WrongDirection => "wrong-direction",
            Self::OutsideWindow => "outside-window",
            Self::UnexpectedResult => "unexpected-result",
            Self::NotReading => "not-reading",
            Self::NeverJoined => "never-joined",
            Self::Handshake => "handshake",
            Self::TooManyLinks => "too-many-links",
            Self::OutOfTurn => "out-of-turn",
            Self::NotAuthentic => "not-authentic",
        }
    }

    /// What a link's failure says of the peer; `None` if it merely went away.
    pub(super) fn of_receive(error: &ReceiveError) -> Option<Self> {
        match error {
            ReceiveError::Truncated { .. } => Some(Self::Truncated),
            ReceiveError::NotAuthentic { .. } => Some(Self::NotAuthentic),
            ReceiveError::TooLong { .. } => Some(Self::Oversized),
            ReceiveError::Decode(DecodeError::BadMagic(_)) => Some(Self::Garbage),
            ReceiveError::Decode(DecodeError::BadVersion(_)) => Some(Self::WrongVersion),
            ReceiveError::Decode(_) => Some(Self::BadField),
            _ => None,
        }
    }

    /// What a refused frame says of the peer.
    pub(super) fn of_frame(error: &FrameError) -> Self {
        match error {
            FrameError::UnknownGroup { .. } => Self::UnknownGroup,
            FrameError::Forged { .. } => Self::Forged,
            FrameError::AlreadyJoined { .. } => Self::AlreadyJoined,
            FrameError::WrongDirection => Self::WrongDirection,
            FrameError::TooLong { .. } => Self::Oversized,
            FrameError::OutsideWindow { .. } => Self::OutsideWindow,
            FrameError::Unexpected { .. } => Self::UnexpectedResult,
            FrameError::NotReading => Self::NotReading,
            FrameError::StreamNotGranted { .. } | FrameError::NotOfStream { .. } => Self::OutOfTurn,
            // The rest are frames on links that have no right to them.
            _ => Self::WrongPort,
        }
    }

    /// What a failed attempt to accept says of the connector; `None` if this side is at fault.
    pub(super) fn of_accept(error: &AcceptError) -> Option<Self> {
        match error {
            AcceptError::Refused(_) => Some(Self::Handshake),
            _ => None,
        }
    }
}

/// Writes a bounded number of lines a second.
pub(super) struct Log {
    began: Instant,
    lines: u32,
}

impl Log {
    pub(super) fn new(now: Instant) -> Self {
        Self { began: now, lines: 0 }
    }

    /// One line for one fault, or, where there are too many, one line for those left out.
    pub(super) fn refused(&mut self, now: Instant, reason: Reason, what: &dyn std::fmt::Display) {
        if now - self.began >= PERIOD {
            if self.lines > LINES_MAX {
                let left_out = self.lines - LINES_MAX;
                tracing::warn!(left_out, "more peers were refused than are logged one by one");
            }
            self.began = now;
            self.lines = 0;
        }
        self.lines = self.lines.saturating_add(1);
        if self.lines <= LINES_MAX {
            tracing::warn!(reason = reason.label(), "peer refused: {what}");
        }
    }
}
