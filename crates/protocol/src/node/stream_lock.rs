//! The lock that lets one group at a time stream: send a long vector through an aggregator chunk by chunk.
//!
//! A tree's stream slots belong to the aggregator, not to a group. A group that has these slots has the
//! tree's *stream lock* on this aggregator. So streams need radix x window x chunk bytes per tree,
//! whatever the number of groups and the length of their vectors.
//!
//! A stream request ([`Message::StreamRequest`]) goes up to the group's root, merged like a
//! contribution. From there locks are taken downward: an aggregator sends [`Message::StreamGrant`] to its
//! children only once it has its own lock. Each aggregator serves groups in the order in which they began
//! to wait. Chunks then go through the slots as segments do. A member that has all results sends
//! [`Message::StreamDone`]. An aggregator whose children have all sent it gives the lock to the next group
//! and sends it upward.
//!
//! # Why groups never wait for each other in a circle
//!
//! A group's aggregators form a connected part of the tree; let `root(g)` be the uppermost. Say that `g`
//! waits for `h` at aggregator `n` if both requested `n`'s lock and `h` came first. A group that requests
//! the lock of an aggregator has the locks of all the aggregator's ancestors in the group. So `g` and `h` have
//! no common aggregator above `n`: otherwise one of them would have its lock and the other would still be
//! waiting there. So `n` is `root(g)` or `root(h)`. Take a shortest circle of waiting groups, `g1`
//! for `g2` at `n1`, and so on. If `n2 = root(g2)`, then `g2` has no lock and waits nowhere else,
//! so `n1 = n2`, and `g1` waits at `n1` for the group that `g2` waits for. That is a shorter
//! circle, or a group that came before itself. Hence each `n(i) = root(g(i+1))`, which is not
//! `root(g(i))` and therefore lies strictly below it. All the way round the circle, each root lies
//! below itself. So there is no circle.
//!
//! This needs all groups with one [`TreeId`] to agree on which of two aggregators is above the other. The
//! manager ensures that.
//!
//! [`Message::StreamRequest`]: tributary_wire::frame::Message::StreamRequest
//! [`Message::StreamGrant`]: tributary_wire::frame::Message::StreamGrant
//! [`Message::StreamDone`]: tributary_wire::frame::Message::StreamDone

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use tributary_wire::{GroupId, TreeId};

use super::config::StreamLimits;
use super::group::Slots;
use super::planted_hooks;
use crate::payloads::Arena;

/// One tree's stream lock on this aggregator.
#[derive(Debug)]
pub(super) struct StreamLock {
    /// Here while no group streams.
    slots: Option<Box<Slots>>,
    /// Groups that wait for it, first come first served.
    queue: VecDeque<GroupId>,
    arena: Arena,
    limits: StreamLimits,
}

impl StreamLock {
    pub(super) fn new(tree: TreeId, limits: &StreamLimits, radix: u16) -> Self {
        let arena = limits.arena(tree, radix);
        let slots = Some(slots(&arena, limits));
        Self { slots, queue: VecDeque::new(), arena, limits: *limits }
    }

    pub(super) fn arena(&self) -> Arena {
        self.arena
    }

    /// How many groups wait for it.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Lets a group wait for its turn.
    pub(super) fn enqueue(&mut self, group: GroupId) {
        self.queue.push_back(group);
    }

    /// Takes a group out that waits for its turn, or did.
    pub(super) fn dequeue(&mut self, group: GroupId) {
        self.queue.retain(|waiting| *waiting != group);
    }

    /// The group whose turn it is and the slots that it gets, if the lock is free.
    pub(super) fn take_turn(&mut self) -> Option<(GroupId, Box<Slots>)> {
        let Self { slots: free, queue, arena, limits } = self;
        planted_hooks::spoil_lock(free, queue, || slots(arena, limits));
        let slots = free.take()?;
        match queue.pop_front() {
            Some(group) => Some((group, slots)),
            None => {
                *free = Some(slots);
                None
            }
        }
    }

    /// The group that streamed gives its slots back.
    pub(super) fn give_back(&mut self, slots: Box<Slots>) {
        self.slots = Some(slots);
    }
}

fn slots(arena: &Arena, limits: &StreamLimits) -> Box<Slots> {
    let StreamLimits { window_max, chunk_bytes_max, .. } = *limits;
    Box::new(Slots::new(arena.id, window_max, chunk_bytes_max, usize::from(arena.children)))
}
