//! Replicated groups: their members send their contributions to one another, and each folds them all.
//!
//! Owns who has contributed to which operation, what is asked for and answered, how long contributions and sums are
//! kept, and how an operation goes from level to level. Datagrams may be lost, repeated and reordered; links between the
//! members are reliable. Must not know: sockets, clocks, payload. The machines name places, and their driver owns the bytes.
//!
//! [`Levels`] is one host in the groups of all levels of a plan, and [`Member`] its place in one of them. Inputs are `begin`,
//! `leave` and `handle_*`; `poll` gives outputs. The reasons are in decisions 49 and 52.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod levels;
mod member;
mod operation;
mod patience;
#[cfg(feature = "planted-bugs")]
pub mod planted;

pub use levels::{Group, Levels, NoGroups, Step};
pub use member::{Member, NotNow};

/// Most members of a group: a set of them is one word.
pub const MEMBERS_MAX: u8 = 64;

/// The longest contribution that the next datagram repeats.
pub const REPEATED_MAX_BYTES: u32 = 64;

/// How long a contribution may be late in the product before its sender is asked, once. A question costs two frames over a link; a lost
/// datagram that nothing else tells of costs this much.
pub const ASK_AFTER_NS: u64 = 2_000_000;

/// What a member called, as far as all have to call the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Call {
    /// Collective, datatype and operator, as a number.
    pub kind: u64,
    /// Length of a contribution.
    pub len_bytes: u32,
}

/// What a datagram says beside its payload: a contribution, and the sender's one before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The operation that it contributes to.
    pub operation: u64,
    /// What its sender called.
    pub call: Call,
    /// What its sender called before, if that contribution is repeated here.
    pub previous: Option<Call>,
}

/// A message over a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The sender lacks the receiver's contribution.
    Ask {
        /// To which operation.
        operation: u64,
    },
    /// The sender lacks that of a member that is dead.
    AskFor {
        /// To which operation.
        operation: u64,
        /// The member whose contribution it is.
        of: u8,
    },
    /// The sender lacks a contribution of another member, which answers nothing: does the receiver have the level's sum?
    AskForSum {
        /// Of which operation.
        operation: u64,
    },
    /// The sender has not begun that operation, or has not folded it. It pushes what was asked for when it has.
    NotYet {
        /// The operation.
        operation: u64,
        /// The dead member that was asked for: the sender lacks its contribution too, and takes it no more.
        lacks: Option<u8>,
    },
    /// The sender's contribution, with its payload.
    Contribution {
        /// To which operation.
        operation: u64,
        /// What its sender called.
        call: Call,
    },
    /// What a dead member contributed, with its payload, to a member that asked for it.
    Passed {
        /// To which operation.
        operation: u64,
        /// The dead member.
        of: u8,
        /// What it called.
        call: Call,
    },
    /// The level's sum, with its payload.
    Sum {
        /// Of which operation.
        operation: u64,
    },
    /// The group has failed at the sender.
    Failed {
        /// Why.
        failure: Failure,
    },
    /// The sender begins no operation from this one on.
    Leave {
        /// The operation.
        before: u64,
    },
    /// The sender lacks nothing of the receiver's, which has left.
    Farewell,
}

/// Why an operation fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// These two called differently; all members name the same two.
    Disagreement(u8, u8),
    /// This member is dead, and nobody that lives has its contribution.
    Dead(u8),
}

/// Where payload lies in a driver's memory: for each place, the members' contributions and a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A member's contribution.
    Contribution {
        /// Which place, below [`Member::places`].
        place: usize,
        /// The member whose contribution it is.
        member: u8,
    },
    /// The level's sum.
    Sum {
        /// Which place.
        place: usize,
    },
}

/// Where the payload of a datagram goes; what is named nowhere is dropped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Landing {
    /// The contribution.
    pub current: Option<Place>,
    /// The one before it.
    pub previous: Option<Place>,
}

/// What a driver is to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// Send a datagram to all other members.
    Send {
        /// What it says.
        datagram: Datagram,
        /// Its payload.
        payload: Place,
        /// The payload of the contribution before it.
        previous: Option<Place>,
    },
    /// Send a message over the link to a member.
    Tell {
        /// To whom.
        to: u8,
        /// What.
        message: Message,
        /// Its payload, if it has one.
        payload: Option<Place>,
    },
    /// Fold all contributions of a place, from the first member's to the last's, into its sum.
    Fold {
        /// The place.
        place: usize,
    },
    /// An operation's sum is at its place.
    Completed {
        /// The operation.
        operation: u64,
        /// Its place.
        place: usize,
    },
    /// An operation failed, and with it the group.
    Failed {
        /// The operation.
        operation: u64,
        /// Why.
        failure: Failure,
    },
}
