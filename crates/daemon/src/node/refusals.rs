//! Names of peers' faults: one per counter, and one log line for each fault.

use std::fmt::Display;

use tributary_protocol::node::FrameError;
use tributary_transport::{AcceptError, ReceiveError};
use tributary_wire::frame::DecodeError;

/// Why the aggregator closed a peer's link. The metrics' label `reason` names it.
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

/// Why a datagram was dropped. The metrics' label `reason` names it. Its sender may be anybody.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dropped {
    /// Its group's frames are authenticated, and its code is missing or wrong.
    NotAuthentic,
    /// It names no edge of this aggregator, or shows another capability than the edge's.
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

    /// Writes a line about a peer that was refused. The process bounds how many there are.
    pub(super) fn log(self, what: &dyn Display) {
        tracing::warn!(reason = self.label(), "peer refused: {what}");
    }

    /// The peer's fault in a link's failure; `None` if the peer only disconnected.
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

    /// The peer's fault in a refused frame.
    pub(super) fn of_frame(error: &FrameError) -> Self {
        match error {
            FrameError::UnknownGroup { .. } => Self::UnknownGroup,
            FrameError::WrongVersion { .. } => Self::WrongVersion,
            FrameError::Forged { .. } => Self::Forged,
            FrameError::AlreadyJoined { .. } => Self::AlreadyJoined,
            FrameError::WrongDirection => Self::WrongDirection,
            FrameError::TooLong { .. } => Self::Oversized,
            FrameError::OutsideWindow { .. } => Self::OutsideWindow,
            FrameError::Unexpected { .. } => Self::UnexpectedResult,
            FrameError::NotReading => Self::NotReading,
            FrameError::StreamNotGranted { .. } | FrameError::NotOfStream { .. } => Self::OutOfTurn,
            // The rest are frames on a link that may not carry them.
            _ => Self::WrongPort,
        }
    }

    /// The connector's fault in a failed accept; `None` if this side is at fault.
    pub(super) fn of_accept(error: &AcceptError) -> Option<Self> {
        match error {
            AcceptError::Refused(_) => Some(Self::Handshake),
            _ => None,
        }
    }
}
