//! Whether links lose packets: the ranks ask each other, between two blocking operations.

use tributary_algorithms::Collective;
use tributary_wire::{Datatype, Operator};

use super::Engine;
use crate::operation::{CollectiveError, Operation};
use tributary_selection::Path;

impl Engine {
    /// Asks all ranks how many packets were lost, if that is due; and tells the tree what is to be expected. To be
    /// called before each blocking operation, at all ranks.
    ///
    /// # Errors
    /// As any operation.
    pub(crate) fn agree_on_losses(&mut self) -> Result<(), CollectiveError> {
        if self.selection.asks_for_losses() {
            let sent_again =
                self.methods.direct.as_ref().map_or(0, |links| links.retransmissions());
            // A link that was made anew counts from zero.
            let mine = sent_again.saturating_sub(self.sent_again);
            self.sent_again = sent_again;
            let lost = self.sum_of(mine)?;
            self.selection.note_losses(lost);
        }
        if let Some(tree) = &mut self.methods.tree {
            tree.expect_losses(self.selection.expects_losses());
        }
        Ok(())
    }

    /// The sum of a number of every rank, through the tree.
    fn sum_of(&mut self, mine: u64) -> Result<u64, CollectiveError> {
        let mut sum = 0_u64;
        let operation = Operation {
            collective: Collective::Allreduce,
            operator: Operator::Sum,
            datatype: Datatype::U64,
            elements: 1,
            source: (&raw const mine).cast(),
            target: (&raw mut sum).cast(),
            ..Operation::BARRIER
        };
        // SAFETY: both numbers live until this returns, and nobody else uses them.
        unsafe { self.run(&operation, Path::Tree) }?;
        Ok(sum)
    }
}
