//! Streams: long vectors that go through a node chunk by chunk, one group at a time.
//!
//! A tree's stream slots belong to the node, not to a group. A group that has these slots has the
//! tree's *stream lock* on this node. So streams need radix x window x chunk bytes per tree,
//! whatever the number of groups and the length of their vectors.
//!
//! A stream request ([`Message::StreamRequest`]) goes up to the group's root, merged like a
//! contribution. From there locks are taken downward: a node sends [`Message::StreamGrant`] to its
//! children only once it has its own lock. Each node serves groups in the order in which they began
//! to wait. Chunks then go through the slots as segments do. A member that has all results sends
//! [`Message::StreamDone`]. A node whose children have all sent it gives the lock to the next group
//! and sends it upward.
//!
//! # Why groups never wait for each other in a circle
//!
//! A group's nodes form a connected part of the tree; let `root(g)` be the uppermost. Say that `g`
//! waits for `h` at node `n` if both requested `n`'s lock and `h` came first. A group that requests
//! the lock of a node has the locks of all the node's ancestors in the group. So `g` and `h` have
//! no common node above `n`: otherwise one of them would have its lock and the other would still be
//! waiting there. So `n` is `root(g)` or `root(h)`. Take a shortest circle of waiting groups, `g1`
//! for `g2` at `n1`, and so on. If `n2 = root(g2)`, then `g2` has no lock and waits nowhere else,
//! so `n1 = n2`, and `g1` waits at `n1` for the group that `g2` waits for. That is a shorter
//! circle, or a group that came before itself. Hence each `n(i) = root(g(i+1))`, which is not
//! `root(g(i))` and therefore lies strictly below it. All the way round the circle, each root lies
//! below itself. So there is no circle.
//!
//! This needs all groups with one [`TreeId`] to agree on which of two nodes is above the other. The
//! manager ensures that.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use tributary_wire::frame::{Abort, AbortReason, Message, Part, StreamRequest};
use tributary_wire::{ChildIndex, GroupId, OperationNumber, TreeId};

use super::config::StreamLimits;
use super::slots::Slots;
use super::{FrameError, Node};
use crate::payloads::{Arena, ArenaId};

mod group;

pub(super) use group::{GroupStream, PendingStage};
use group::{PendingStream, Step};

/// One tree's stream lock on this node.
#[derive(Debug)]
pub(super) struct StreamLock {
    /// Here while no group streams.
    slots: Option<Box<Slots>>,
    /// Groups that wait for it, first come first served.
    queue: VecDeque<GroupId>,
    arena: Arena,
}

impl StreamLock {
    pub(super) fn new(tree: TreeId, limits: &StreamLimits, radix: u16) -> Self {
        let id = ArenaId::Stream(tree);
        let slots = Slots::new(id, limits.window_max, limits.chunk_bytes_max, usize::from(radix));
        let arena = limits.arena(tree, radix);
        Self { slots: Some(Box::new(slots)), queue: VecDeque::new(), arena }
    }

    pub(super) fn arena(&self) -> Arena {
        self.arena
    }
}

impl Node {
    /// The memory that the streams of a group's tree need here; none if the group may not stream.
    #[must_use]
    pub fn stream_arena(&self, group: GroupId) -> Option<Arena> {
        let group = self.groups.get(group.0 as usize)?.as_ref()?;
        Some(self.locks[usize::from(group.stream.as_ref()?.tree.0)].arena())
    }

    /// Groups that wait for a stream lock here.
    #[must_use]
    pub fn streams_waiting(&self) -> usize {
        self.locks.iter().map(|lock| lock.queue.len()).sum()
    }

    pub(super) fn handle_stream_request(
        &mut self,
        id: GroupId,
        child: ChildIndex,
        request: &StreamRequest,
    ) -> Result<(), FrameError> {
        match self.group_mut(id).pending(child, request)? {
            Step::Waiting => {}
            Step::Repeat => self.outputs.stats.repeats += 1,
            Step::Failed(abort) => self.fail(id, abort),
            Step::All => {
                let group = self.group_mut(id);
                let Some((port, header)) = group.header_to_parent(Message::StreamRequest(*request))
                else {
                    self.wait_for_lock(id);
                    return Ok(());
                };
                group.set_pending_stage(PendingStage::Forwarded);
                if !self.outputs.transmit(port, header, None) {
                    self.fail_for_lost_parent(id);
                }
            }
        }
        Ok(())
    }

    /// The parent has its lock; this node's lock is next.
    pub(super) fn handle_stream_grant(
        &mut self,
        id: GroupId,
        operation: OperationNumber,
    ) -> Result<(), FrameError> {
        let stream = self.group_mut(id).stream.as_ref();
        let stream = stream.ok_or(FrameError::StreamNotGranted { operation })?;
        match &stream.pending {
            Some(PendingStream { cut, stage: PendingStage::Forwarded })
                if cut.request().operation == operation =>
            {
                self.wait_for_lock(id);
            }
            _ => return Err(FrameError::StreamNotGranted { operation }),
        }
        Ok(())
    }

    /// Whether a chunk, or a chunk's result, belongs to the stream that runs. Late copies are
    /// counted.
    pub(super) fn admits_chunk(&mut self, id: GroupId, part: &Part) -> Result<bool, FrameError> {
        let not_granted = FrameError::StreamNotGranted { operation: part.operation };
        let is_running = self.group_mut(id).stream.as_ref().ok_or(not_granted)?.admit(part)?;
        self.outputs.stats.repeats += u64::from(!is_running);
        Ok(is_running)
    }

    pub(super) fn handle_stream_done(
        &mut self,
        id: GroupId,
        child: ChildIndex,
        operation: OperationNumber,
    ) -> Result<(), FrameError> {
        match self.group_mut(id).mark_done(child, operation)? {
            Step::All => self.finish_stream(id, operation),
            Step::Repeat => self.outputs.stats.repeats += 1,
            Step::Waiting | Step::Failed(_) => {}
        }
        Ok(())
    }

    /// Everyone below has every result: the lock is free.
    fn finish_stream(&mut self, id: GroupId, operation: OperationNumber) {
        self.outputs.stats.streams += 1;
        let tree = self.take_lock_back(id).expect("only a stream that runs finishes");
        let group = self.group_mut(id);
        if let Some((port, header)) = group.header_to_parent(Message::StreamDone(operation))
            && !self.outputs.transmit(port, header, None)
        {
            self.fail_for_lost_parent(id);
        }
        self.serve_lock(tree);
    }

    fn fail_for_lost_parent(&mut self, id: GroupId) {
        // All that the parent's link may have queued fits. If it is full, the parent does not read:
        // count it as lost.
        let at_fault = self.group_mut(id).first_member();
        self.fail(id, Abort { reason: AbortReason::NodeLost, at_fault });
    }

    fn wait_for_lock(&mut self, id: GroupId) {
        let group = self.group_mut(id);
        group.set_pending_stage(PendingStage::Queued);
        let tree = group.stream.as_ref().expect("it has a pending stream").tree;
        self.locks[usize::from(tree.0)].queue.push_back(id);
        self.serve_lock(tree);
    }

    /// Gives a free lock to the group that has waited longest.
    pub(super) fn serve_lock(&mut self, tree: TreeId) {
        loop {
            #[cfg(feature = "planted-bugs")]
            self.plant_in_lock(tree);
            let lock = &mut self.locks[usize::from(tree.0)];
            if lock.slots.is_none() {
                return;
            }
            let Some(id) = lock.queue.pop_front() else { return };
            let slots = lock.slots.take().expect("it was just seen");
            self.group_mut(id).start_stream(slots);
            match self.send_stream_grant(id) {
                Ok(()) => return,
                // The lock is free again at once. Looping instead of recursing bounds the stack.
                Err(abort) => {
                    self.drop_group(id, abort);
                }
            }
        }
    }

    /// Two of the bugs that the swarm has to find.
    #[cfg(feature = "planted-bugs")]
    fn plant_in_lock(&mut self, tree: TreeId) {
        use crate::planted::{Bug, is_planted};
        let fresh = StreamLock::new(tree, &self.config.streams, self.config.radix_max).slots;
        let lock = &mut self.locks[usize::from(tree.0)];
        if is_planted(Bug::SharedLock) && lock.slots.is_none() {
            lock.slots = fresh;
        }
        if is_planted(Bug::UnfairLock) && lock.slots.is_some() {
            lock.queue.make_contiguous().reverse();
        }
    }

    fn send_stream_grant(&mut self, id: GroupId) -> Result<(), Abort> {
        for index in 0..self.group_mut(id).children.len() {
            let group = self.group_mut(id);
            let operation = group.stream.as_ref().and_then(|stream| stream.newest);
            let message = Message::StreamGrant(operation.expect("the group has the lock"));
            let header = group.header_to_child(ChildIndex(index as u16), message);
            let child = &group.children[index];
            let at_fault = child.members.start;
            let is_queued =
                child.port.is_some_and(|port| self.outputs.transmit(port, header, None));
            if !is_queued {
                return Err(Abort { reason: AbortReason::MemberLost, at_fault });
            }
        }
        Ok(())
    }

    /// Takes the slots from the group if it streams, and returns their tree. Queued answers to
    /// repeats are dropped, because they would show the next group's data.
    pub(super) fn take_lock_back(&mut self, id: GroupId) -> Option<TreeId> {
        let group = self.groups[id.0 as usize].as_mut().expect("the caller found the group");
        let stream = group.stream.as_mut()?;
        let active = stream.active.take()?;
        let arena = active.slots.arena_id();
        let parent = group.parent.as_ref().map(|parent| parent.port);
        let tree = stream.tree;
        for port in group.children.iter().filter_map(|child| child.port).chain(parent) {
            self.outputs.outbox_mut(port).forget(arena);
        }
        self.locks[usize::from(tree.0)].slots = Some(active.slots);
        Some(tree)
    }

    /// Takes a group that is being removed from the lock that it has or waits for.
    pub(super) fn leave_lock(&mut self, id: GroupId) -> Option<TreeId> {
        let tree = self.group_mut(id).stream.as_ref()?.tree;
        #[cfg(feature = "planted-bugs")]
        let was_active = self.group_mut(id).stream.as_ref().is_some_and(|it| it.active.is_some());
        self.locks[usize::from(tree.0)].queue.retain(|waiting| *waiting != id);
        self.take_lock_back(id);
        #[cfg(feature = "planted-bugs")]
        if was_active && crate::planted::is_planted(crate::planted::Bug::LostLock) {
            self.locks[usize::from(tree.0)].slots = None;
        }
        Some(tree)
    }
}
