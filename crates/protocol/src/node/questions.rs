//! Questions whether a node is there: answered to whoever asks, and passed on to the parent.

use alloc::vec::Vec;

use tributary_wire::frame::{Abort, AbortReason, Message};
use tributary_wire::{ChildIndex, GroupId};

use super::group::Group;
use super::{Node, PortId};
use crate::Time;
use crate::liveness::Patience;

impl Node {
    /// Tells a child that this node is there, and asks the parent whether it is: the child waits for both. Whoever
    /// has no room for the answer is being sent something, which says so as well.
    pub(super) fn answer_question(
        &mut self,
        now: Time,
        port: PortId,
        group: GroupId,
        child: ChildIndex,
        number: u8,
    ) {
        let answer = self.group_mut(group).header_to_child(child, Message::Probed(number));
        let _ = self.outputs.transmit(port, answer, None);
        self.ask_parent(now, group);
    }

    /// Asks the group's parent whether it is there, unless that was just done. A parent that has left too many
    /// questions unanswered is lost.
    fn ask_parent(&mut self, now: Time, id: GroupId) {
        let losses = self.losses;
        let group = self.group_mut(id);
        let Some(parent) = &group.parent else { return };
        // The node that another group lost may be this one's parent: members below it miss it first.
        let is_suspect = losses > group.losses_at_parent_frame;
        let patience = if is_suspect { Patience::SUSPICIOUS } else { Patience::USUAL };
        if !group.parent_liveness.ask(now, patience) {
            let name = parent.name.clone();
            return self.give_up_parent(&name);
        }
        let Some(number) = group.parent_liveness.question() else { return };
        group.parent_liveness.on_asked();
        if let Some((port, question)) = group.header_to_parent(Message::Probe(number)) {
            // One that the link does not take counts: the parent reads nothing.
            let _ = self.outputs.transmit(port, question, None);
        }
    }

    /// Fails all groups that have this parent, whoever asked: a program waits for one group after the other, and would
    /// find each of them stuck in turn.
    #[cold]
    fn give_up_parent(&mut self, name: &str) {
        let is_below = |group: &&Group| group.parent.as_ref().is_some_and(|it| *it.name == *name);
        let groups = self.groups.iter().flatten().map(|group| &**group).filter(is_below);
        let lost: Vec<GroupId> = groups.map(|group| group.id).collect();
        for id in lost {
            let at_fault = self.group_mut(id).first_member();
            self.fail(id, Abort { reason: AbortReason::NodeLost, at_fault });
        }
    }
}
