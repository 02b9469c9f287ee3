//! What happens next, in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// One end of a link: the nearer to the members, or the nearer to the root.
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

/// Who takes what is sent to a group's multicast address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Listener {
    Member(u32),
    Node { node: u32, life: u32 },
}

/// Something that is due. Numbers name entries of the world's tables; a `life` tells a process from
/// the one that was started in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Item {
    /// The next parcel of a link comes out at an end.
    Arrive { link: u32, to: End },
    /// A datagram comes out at an end of the path beside a link.
    Datagram { link: u32, to: End, place: u32 },
    /// A member's machine asked to be called.
    MemberTimer { member: u32 },
    /// An end that has heard nothing for too long gives its link up.
    LinkSilent { link: u32, end: End },
    /// Nobody has joined over a link that a node took, or its last word is said for long enough.
    LinkOverdue { link: u32, end: End },
    /// A node's machine asked to be called.
    NodeTimer { node: u32, life: u32 },
    /// Groups that were ordered to be dropped are due.
    Removals { node: u32, life: u32 },
    /// A node's wish to be registered reaches the manager.
    Register { node: u32, life: u32 },
    /// An order reaches a node.
    Order { node: u32, session: u32 },
    /// A node's event reaches the manager.
    Report { node: u32, session: u32 },
    /// One side of a node's conversation with the manager learns that it is over.
    SessionOver { node: u32, session: u32, at_manager: bool },
    /// A node's attempt to reach its parent succeeds or fails.
    Connected { node: u32, session: u32 },
    /// A crashed node is started again.
    NodeStarts { node: u32 },
    /// The manager is started again.
    ManagerStarts,
    /// The manager's machine asked to be called.
    ManagerTimer { life: u32 },
    /// A job's wish to be admitted reaches the manager.
    Admit { job: u32 },
    /// Its lease reaches the job.
    Admitted { job: u32, life: u32 },
    /// The manager learns that a job's lease is closed.
    LeaseOver { job: u32, lease: u32, life: u32 },
    /// A job asks for one of its groups.
    GroupRequest { job: u32, group: u32 },
    /// That wish reaches the manager.
    Request { job: u32, group: u32, life: u32 },
    /// The manager's answer reaches the job.
    Decision { job: u32, group: u32, attempt: u32 },
    /// A job that lost a process is ended by its launcher.
    JobEnds { job: u32 },
    /// A member connects to its node.
    Connect { member: u32 },
    /// A member starts its next operation.
    Start { member: u32 },
    /// More of what a member streams may be sent.
    Ready { member: u32 },
    /// A result that was multicast comes to one who listens.
    Multicast { listener: Listener, place: u32 },
    /// Such a result comes late, to whoever listens at the group's address by then.
    Stray { group: u32, place: u32 },
    /// A member whose operations are complete leaves.
    Leave { member: u32 },
    /// Something goes wrong.
    Fault { index: u32 },
    /// The ends of links across a partition stop believing in each other.
    PartitionSilent { index: u32 },
}

/// Things due, earliest first; those due at once in the order in which they were put.
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
