//! How the engine takes the steps of an exact sum: each is an operation of its own.

use tributary_selection::Path;

use super::exact::{ExactSum, Next};
use super::{Current, Engine};
use crate::operation::{CollectiveError, Operation};

impl Engine {
    /// Makes an exact sum the current operation.
    pub(super) fn begin_exact_sum(&mut self, operation: &Operation, path: Path) {
        let (rank, ranks) = (self.placement.rank, self.placement.ranks());
        let sums = self.exact_sums.as_mut().expect("sums are exact here");
        let (sum, carried) = sums.begin(*operation, rank, ranks);
        self.begin_step(sum, &carried, path);
    }

    /// The plan of the current operation is over: begins the next step of an exact sum. `false` if there is none.
    pub(super) fn begin_next_step(&mut self) -> Result<bool, CollectiveError> {
        let Some(current) = &mut self.current else { return Ok(false) };
        let Some((mut sum, path)) = current.exact_sum.take() else { return Ok(false) };
        let sums = self.exact_sums.as_mut().expect("sums are exact here");
        match sums.go_on(&mut sum) {
            Next::Step(carried) => {
                self.begin_step(sum, &carried, path);
                Ok(true)
            }
            Next::Over => Ok(false),
            Next::Refused => Err(self.refuse()),
        }
    }

    /// What came from the others is no survey.
    fn refuse(&mut self) -> CollectiveError {
        self.fail(CollectiveError::NoExponents { label: self.label.clone() })
    }

    /// Ranks of a host compare what carries a call, and this.
    fn note_called(&mut self, sum: &ExactSum) {
        let called = sum.call_of_program();
        if let Some(host) = &mut self.host {
            host.note(called.number ^ (called.kind as u32) << 16);
        }
    }

    fn begin_step(&mut self, sum: ExactSum, carried: &Operation, path: Path) {
        let step_path = match sum.is_surveying() {
            true => self.selection.path(&carried.question()),
            false => path,
        };
        self.note_called(&sum);
        let plan = self.plan(carried, sum.call_of_program(), step_path);
        self.current = Some(Current { exact_sum: Some((sum, path)), ..Current::new(plan) });
    }
}
