//! What happens in a world, when it is due, and how a frame came.

use tributary_protocol::{Carrier, Time};

use super::ids::{AggregatorId, MemberId, NoticeId, RankId, TransferId};
use super::packet::Packet;
use crate::engine::Picos;

/// An event.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// A core has handed a packet to its host's adapter.
    Post(Packet),
    /// The head of a packet reaches a switch.
    Hop(Packet),
    /// The last byte of a packet reaches its destination.
    Arrive(Packet),
    /// A packet is there that was lost before, or that waited for one.
    ArriveLate(Packet),
    /// An aggregation node sends a packet.
    Emit(Packet),
    /// A member may have to repeat something.
    MemberTimer(MemberId),
    /// An aggregation node may have to repeat something.
    NodeTimer(AggregatorId),
    /// A member starts its operation.
    Begin(MemberId),
    /// A rank starts its collective.
    Enter(RankId),
    /// A message through shared memory is visible to its receiver.
    Share(TransferId),
    /// A rank of a graph begins, or has done an operation.
    Resume(RankId),
    /// A rank begins an operation of so many bytes by its replicated groups.
    Contribute(RankId, u32),
    /// What a member of a replicated group said can be seen.
    Notice(NoticeId),
    /// A rank takes what other members have said.
    TakeNotices(RankId),
    /// A member of a level's group may have to ask.
    GroupTimer(RankId),
}

/// How a frame came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Way {
    pub(super) carrier: Carrier,
    /// Whether it came through the memory of one host.
    pub(super) is_local: bool,
}

/// When a timer of the protocol is due.
pub(super) fn due_at(due: Time, now: Picos) -> Picos {
    Picos(due.0.saturating_mul(1000)).max(now)
}

/// The time in the protocol's unit.
pub(super) fn time_at(now: Picos) -> Time {
    Time(now.0 / 1000)
}
