//! The agenda: what is due, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One end of a link: the lower one is nearer to the members, the upper one nearer to the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum End {
    Lower,
    Upper,
}

impl End {
    pub(super) fn other(self) -> Self {
        match self {
            Self::Lower => Self::Upper,
            Self::Upper => Self::Lower,
        }
    }
}

/// A receiver of what is sent to a group's multicast address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listener {
    Member(u32),
    Node { node: u32, life: u32 },
}

/// A leader, by its communicator and its number there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LeaderId {
    pub(super) communicator: u32,
    pub(super) number: u32,
}

/// Something that is due. Numbers are indices into the world's tables. A `life` tells a process
/// from the one that is started in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// The next parcel of a link arrives at an end.
    Arrive { link: u32, to: End },
    /// A datagram arrives at an end of the path beside a link.
    Datagram { link: u32, to: End, place: u32 },
    /// A timer of a member's machine expires.
    MemberTimer { member: u32 },
    /// An end that has received nothing for too long gives up its link.
    LinkSilent { link: u32, end: End },
    /// Nobody has joined over a link that an aggregator accepted, or the peer did not close it after the
    /// aggregator's last message.
    LinkOverdue { link: u32, end: End },
    /// A timer of an aggregator's machine expires.
    NodeTimer { node: u32, life: u32 },
    /// The time comes to drop groups that the manager ordered to be dropped.
    Removals { node: u32, life: u32 },
    /// An aggregator's registration reaches the manager.
    Register { node: u32, life: u32 },
    /// An order reaches an aggregator.
    Order { node: u32, session: u32 },
    /// An aggregator's event reaches the manager.
    Report { node: u32, session: u32 },
    /// One side of an aggregator's conversation with the manager learns that it has ended.
    SessionOver { node: u32, session: u32, at_manager: bool },
    /// An aggregator's attempt to reach its parent succeeds or fails.
    Connected { node: u32, session: u32 },
    /// A crashed aggregator is restarted.
    NodeStarts { node: u32 },
    /// The manager is restarted.
    ManagerStarts,
    /// A timer of the manager's machine expires.
    ManagerTimer { life: u32 },
    /// A job's request to be admitted reaches the manager.
    Admit { job: u32 },
    /// The lease reaches the job.
    Admitted { job: u32, life: u32 },
    /// The manager learns that a job's lease is closed.
    LeaseOver { job: u32, lease: u32, life: u32 },
    /// A job requests one of its groups.
    GroupRequest { job: u32, group: u32 },
    /// That request reaches the manager.
    Request { job: u32, group: u32, life: u32 },
    /// The manager's answer reaches the job.
    Decision { job: u32, group: u32, attempt: u32 },
    /// The launcher of a job that lost a process ends the job.
    JobEnds { job: u32 },
    /// A member connects to its aggregator.
    Connect { member: u32 },
    /// A member starts its next operation.
    Start { member: u32 },
    /// More bytes of a member's stream become ready.
    Ready { member: u32 },
    /// A multicast result reaches a receiver.
    Multicast { listener: Listener, place: u32 },
    /// A multicast result comes late, to all who receive at the group's address by then.
    Stray { group: u32, place: u32 },
    /// A message of one leader reaches another over their direct link.
    Hear { from: LeaderId, to: u32 },
    /// A leader is called because of the loss of tree `epoch`.
    Alarm { to: LeaderId, epoch: u32 },
    /// A leader without a tree starts its next operation.
    LeaderStart { leader: LeaderId },
    /// More bytes of a leader's stream become ready while it has no tree.
    LeaderReady { leader: LeaderId },
    /// A member whose operations are complete leaves.
    Leave { member: u32 },
    /// A fault is injected.
    Fault { index: u32 },
    /// The ends of links across a partition give each other up.
    PartitionSilent { index: u32 },
}

/// Items that are due, earliest first; those of the same time in the order in which they were
/// added.
#[derive(Default)]
pub(super) struct Agenda {
    heap: BinaryHeap<Reverse<(u64, u64, Item)>>,
    entries: u64,
}

impl Agenda {
    pub(super) fn put(&mut self, at: u64, item: Item) {
        self.entries += 1;
        self.heap.push(Reverse((at, self.entries, item)));
    }

    pub(super) fn pop(&mut self) -> Option<(u64, Item)> {
        self.heap.pop().map(|Reverse((at, _, item))| (at, item))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn things_due_at_once_keep_their_order() {
        let mut agenda = Agenda::default();
        agenda.put(5, Item::ManagerStarts);
        for member in [9, 3, 7] {
            agenda.put(4, Item::Start { member });
        }
        for member in [9, 3, 7] {
            assert_eq!(agenda.pop(), Some((4, Item::Start { member })));
        }
        assert_eq!(agenda.pop(), Some((5, Item::ManagerStarts)));
        assert_eq!(agenda.pop(), None);
    }
}
