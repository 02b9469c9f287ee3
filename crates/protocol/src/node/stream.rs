//! Streams: long vectors that go through a node chunk by chunk, one group at a time.
//!
//! A tree's stream slots are the node's, not a group's, and a group that holds them holds the
//! tree's *stream lock* there: the lock is the possession of the slots. So the memory that streams
//! need is radix x window x chunk per tree, whatever the number of groups and the length of their
//! vectors.
//!
//! A wish for a stream ([`Message::StreamAsk`]) goes up, merged like a contribution, to the group's
//! root. From there locks are taken downward: a node passes [`Message::StreamTurn`] on to its
//! children only once it holds its own lock; each node serves groups in the order in which they
//! came to wait. Chunks then go through the slots as segments do. Whoever has all results says
//! [`Message::StreamDone`]; a node whose children have all said so gives the lock to the next group
//! and says it upward.
//!
//! # Why groups never wait for each other in a circle
//!
//! A group's nodes form a connected part of the tree; let `root(g)` be the uppermost. Say that `g`
//! waits for `h` at node `n` if both asked for `n`'s lock and `h` came first. Whoever asks for the
//! lock of a node holds those of all its ancestors in its group, so `g` and `h` have no common node
//! above `n`: else one of them held it and the other was still waiting there. So `n` is `root(g)`
//! or `root(h)`. Take a shortest circle of waiting groups, `g1` for `g2` at `n1`, and so on. If
//! `n2 = root(g2)`, then `g2` holds nothing and waits nowhere else, so `n1 = n2`, and `g1` waits at
//! `n1` for whomever `g2` waits for: a shorter circle, or a group that came before itself. Hence
//! each `n(i) = root(g(i+1))`, which is not `root(g(i))` and therefore lies strictly below it; all
//! the way round the circle, each root lies below itself. There is no circle.
//!
//! This needs that all groups with one [`TreeId`] agree on which of two nodes is above the other,
//! which the manager sees to.

use alloc::boxed::Box;
use alloc::collections::VecDeque;

use tributary_wire::frame::{Abort, AbortReason, Message, Part, StreamAsk};
use tributary_wire::{ChildIndex, GroupId, OperationNumber, TreeId};

use super::config::StreamLimits;
use super::slots::Slots;
use super::{FrameError, Node};
use crate::payloads::{Arena, ArenaId};

mod group;

pub(super) use group::GroupStream;
use group::{Step, Wish, WishStage};

/// One tree's stream lock on this node.
#[derive(Debug)]
pub(super) struct StreamLock {
    /// At home while no group streams.
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

    pub(super) fn handle_stream_ask(
        &mut self,
        id: GroupId,
        child: ChildIndex,
        ask: &StreamAsk,
    ) -> Result<(), FrameError> {
        match self.group_mut(id).wish(child, ask)? {
            Step::Waiting => {}
            Step::Repeat => self.stats.repeats += 1,
            Step::Failed(abort) => self.fail(id, abort),
            Step::All => {
                let group = self.group_mut(id);
                let Some((port, header)) = group.header_to_parent(Message::StreamAsk(*ask)) else {
                    self.wait_for_lock(id);
                    return Ok(());
                };
                group.set_wish_stage(WishStage::Forwarded);
                if !self.transmit(port, header, None) {
                    self.fail_for_lost_parent(id);
                }
            }
        }
        Ok(())
    }

    /// The parent holds its lock: this node's is next.
    pub(super) fn handle_stream_turn(
        &mut self,
        id: GroupId,
        operation: OperationNumber,
    ) -> Result<(), FrameError> {
        let stream = self.group_mut(id).stream.as_ref();
        let stream = stream.ok_or(FrameError::OutOfTurn { operation })?;
        match &stream.wish {
            Some(Wish { cut, stage: WishStage::Forwarded }) if cut.ask().operation == operation => {
                self.wait_for_lock(id);
            }
            _ => return Err(FrameError::OutOfTurn { operation }),
        }
        Ok(())
    }

    /// Whether a chunk, or a chunk's result, is one of the stream that runs; late copies are counted.
    pub(super) fn admits_chunk(&mut self, id: GroupId, part: &Part) -> Result<bool, FrameError> {
        let out_of_turn = FrameError::OutOfTurn { operation: part.operation };
        let is_running = self.group_mut(id).stream.as_ref().ok_or(out_of_turn)?.admit(part)?;
        self.stats.repeats += u64::from(!is_running);
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
            Step::Repeat => self.stats.repeats += 1,
            Step::Waiting | Step::Failed(_) => {}
        }
        Ok(())
    }

    /// Everyone below has every result: the lock is free.
    fn finish_stream(&mut self, id: GroupId, operation: OperationNumber) {
        self.stats.streams += 1;
        let tree = self.take_lock_back(id).expect("only a stream that runs finishes");
        let group = self.group_mut(id);
        if let Some((port, header)) = group.header_to_parent(Message::StreamDone(operation))
            && !self.transmit(port, header, None)
        {
            self.fail_for_lost_parent(id);
        }
        self.serve_lock(tree);
    }

    fn fail_for_lost_parent(&mut self, id: GroupId) {
        // The parent's link is stuck although all it may have queued fits: count it as lost.
        let at_fault = self.group_mut(id).first_member();
        self.fail(id, Abort { reason: AbortReason::NodeLost, at_fault });
    }

    fn wait_for_lock(&mut self, id: GroupId) {
        let group = self.group_mut(id);
        group.set_wish_stage(WishStage::Queued);
        let tree = group.stream.as_ref().expect("it has a wish").tree;
        self.locks[usize::from(tree.0)].queue.push_back(id);
        self.serve_lock(tree);
    }

    /// Gives a lock that is free to whoever has waited longest.
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
            self.group_mut(id).take_turn(slots);
            match self.announce_turn(id) {
                Ok(()) => return,
                // The lock comes back at once; going round rather than deeper bounds the stack.
                Err(abort) => {
                    self.drop_group(id, abort);
                }
            }
        }
    }

    /// Two of the bugs that the simulator's swarm has to find.
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

    fn announce_turn(&mut self, id: GroupId) -> Result<(), Abort> {
        for index in 0..self.group_mut(id).children.len() {
            let group = self.group_mut(id);
            let operation = group.stream.as_ref().and_then(|stream| stream.newest);
            let word = Message::StreamTurn(operation.expect("it is the group's turn"));
            let header = group.header_to_child(ChildIndex(index as u16), word);
            let child = &group.children[index];
            let at_fault = child.members.start;
            let is_queued = child.port.is_some_and(|port| self.transmit(port, header, None));
            if !is_queued {
                return Err(Abort { reason: AbortReason::MemberLost, at_fault });
            }
        }
        Ok(())
    }

    /// Takes the slots of the stream that runs, if one does, from its group, and says whose they
    /// were. Answers to repeats that are still queued would show the next group's data: they go.
    pub(super) fn take_lock_back(&mut self, id: GroupId) -> Option<TreeId> {
        let group = self.groups[id.0 as usize].as_mut().expect("the caller found the group");
        let stream = group.stream.as_mut()?;
        let held = stream.held.take()?;
        let arena = held.slots.arena_id();
        let parent = group.parent.as_ref().map(|parent| parent.port);
        let tree = stream.tree;
        for port in group.children.iter().filter_map(|child| child.port).chain(parent) {
            self.ports[port.0 as usize].outbox.forget(arena);
        }
        self.locks[usize::from(tree.0)].slots = Some(held.slots);
        Some(tree)
    }

    /// Takes a group that is about to go from whatever lock it holds or waits for.
    pub(super) fn leave_lock(&mut self, id: GroupId) -> Option<TreeId> {
        let tree = self.group_mut(id).stream.as_ref()?.tree;
        #[cfg(feature = "planted-bugs")]
        let was_held = self.group_mut(id).stream.as_ref().is_some_and(|it| it.held.is_some());
        self.locks[usize::from(tree.0)].queue.retain(|waiting| *waiting != id);
        self.take_lock_back(id);
        #[cfg(feature = "planted-bugs")]
        if was_held && crate::planted::is_planted(crate::planted::Bug::LostLock) {
            self.locks[usize::from(tree.0)].slots = None;
        }
        Some(tree)
    }
}
