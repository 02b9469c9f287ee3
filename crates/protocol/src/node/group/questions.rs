//! Questions whether an aggregation node is there: answered, and passed on to the parent.

use tributary_wire::ChildIndex;
use tributary_wire::frame::Message;

use super::{Consequence, Group};
use crate::Time;
use crate::liveness::Patience;
use crate::node::outputs::Outputs;

impl Group {
    /// Tells a child that this aggregator is there, and asks the parent whether it is: the child waits for both.
    /// `losses` is how many groups of this aggregator have lost an aggregator.
    pub(super) fn answer_question(
        &mut self,
        out: &mut Outputs,
        now: Time,
        child: ChildIndex,
        number: u8,
        losses: u64,
    ) -> Consequence {
        if let Some(port) = self.child(child).port {
            let answer = self.header_to_child(child, Message::Probed(number));
            // If there is no room for the answer, what waits there says the same.
            let _ = out.transmit(port, answer, None);
        }
        self.ask_parent(out, now, losses)
    }

    /// Asks the parent whether it is there, unless that was just done. A parent that has left too many questions
    /// unanswered is lost.
    fn ask_parent(&mut self, out: &mut Outputs, now: Time, losses: u64) -> Consequence {
        if self.is_root() {
            return Consequence::None;
        }
        // The aggregator that another group lost may be this one's parent: members below it miss it first.
        let is_suspect = losses > self.losses_at_parent_frame;
        let patience = if is_suspect { Patience::SUSPICIOUS } else { Patience::USUAL };
        if !self.parent_liveness.ask(now, patience) {
            return Consequence::ParentLost;
        }
        if let Some(number) = self.parent_liveness.question() {
            self.parent_liveness.on_asked();
            // A question that the link does not take counts: the parent reads nothing.
            let _ = self.tell_parent(out, Message::Probe(number));
        }
        Consequence::None
    }
}
