//! Which group has a tree's stream lock on this aggregator, and which has it next.

use tributary_wire::{GroupId, OperationNumber, TreeId};

use super::{Node, planted_hooks};
use crate::payloads::Arena;

impl Node {
    /// The memory that the streams of a group's tree need here; none if the group may not stream.
    #[must_use]
    pub fn stream_arena(&self, group: GroupId) -> Option<Arena> {
        let tree = self.groups.get(group)?.stream_tree()?;
        Some(self.locks[usize::from(tree.0)].arena())
    }

    /// Groups that wait for a stream lock here.
    #[must_use]
    pub fn streams_waiting(&self) -> usize {
        self.locks.iter().map(|lock| lock.waiting()).sum()
    }

    /// Lets a group wait for its tree's lock.
    pub(super) fn await_lock(&mut self, id: GroupId) {
        let tree = self.groups.group_mut(id).stream_tree().expect("it has a pending stream");
        self.locks[usize::from(tree.0)].enqueue(id);
        self.serve_lock(tree);
    }

    /// All below have every result of a group's stream: the lock is free.
    pub(super) fn finish_stream(&mut self, id: GroupId, operation: OperationNumber) {
        self.outputs.stats.streams += 1;
        let tree = self.take_lock_back(id).expect("only a stream that runs finishes");
        let group = self.groups.group_mut(id);
        if let Err(abort) = group.report_stream_end(&mut self.outputs, operation) {
            self.fail(id, abort);
        }
        self.serve_lock(tree);
    }

    /// Gives a free lock to the group that has waited longest.
    pub(super) fn serve_lock(&mut self, tree: TreeId) {
        while let Some((id, slots)) = self.locks[usize::from(tree.0)].take_turn() {
            match self.groups.group_mut(id).start_stream(&mut self.outputs, slots) {
                Ok(()) => return,
                // The lock is free again at once. Looping instead of recursing bounds the stack.
                Err(abort) => {
                    self.drop_group(id, abort);
                }
            }
        }
    }

    /// Takes the slots from the group if it streams, and returns their tree.
    fn take_lock_back(&mut self, id: GroupId) -> Option<TreeId> {
        let group = self.groups.group_mut(id);
        let tree = group.stream_tree()?;
        let slots = group.stop_stream(&mut self.outputs)?;
        self.locks[usize::from(tree.0)].give_back(slots);
        Some(tree)
    }

    /// Takes a group that is being removed from the lock that it has or waits for. Returns that lock's tree.
    pub(super) fn leave_lock(&mut self, id: GroupId) -> Option<TreeId> {
        let group = self.groups.group_mut(id);
        let tree = group.stream_tree()?;
        let lock = &mut self.locks[usize::from(tree.0)];
        lock.dequeue(id);
        if let Some(slots) = group.stop_stream(&mut self.outputs)
            && !planted_hooks::loses_lock()
        {
            lock.give_back(slots);
        }
        Some(tree)
    }
}
