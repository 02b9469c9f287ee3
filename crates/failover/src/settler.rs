//! One member's part in a settlement: what it does next, and what it tells the others.
//!
//! Owns the course of a settlement. How members speak to each other, and where vectors lie, is the driver's.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use tributary_wire::OperationNumber;

use super::{Receivers, Segments, Settlement, Standing, Step, Torn, settle, steps};

/// What all members do next, each in the same order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Task {
    /// Member 0 speaks to all, so that everybody learns that there is something to settle.
    Call,
    /// All members' slots come together by "or": see [`Settler::write_slot`], then [`Settler::decide`].
    Exchange,
    /// A step in finishing an operation.
    Step(Step),
    /// All is settled.
    Over,
}

/// Why standings decide nothing. Some member is at fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Undecided {
    /// They cannot be those of one group.
    #[error(transparent)]
    Torn(#[from] Torn),
    /// An operation has to be finished of which this member knows nothing.
    #[error("operation {0} has to be finished, of which nothing is known here")]
    Unknown(OperationNumber),
}

/// A settlement under way at one member.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settler {
    own: Standing,
    /// Most segments that may be in flight, which bounds what a standing tells of.
    window: u16,
    next: Next,
    standings: Vec<Standing>,
    /// The operation that is finished; none before that is decided, and if it is started again.
    finished: Option<OperationNumber>,
    steps: VecDeque<Step>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Next {
    Call,
    Exchange,
    Steps,
}

impl Settler {
    /// A member that has cut itself off from its tree at `own`. All members name the same window.
    #[must_use]
    pub fn new(own: Standing, window: u16) -> Self {
        let (standings, steps) = (Vec::new(), VecDeque::new());
        Self { own, window, next: Next::Call, standings, finished: None, steps }
    }

    /// The next task, once the one before is over here.
    pub fn poll_task(&mut self) -> Task {
        match self.next {
            Next::Call => {
                self.next = Next::Exchange;
                Task::Call
            }
            Next::Exchange => {
                self.next = Next::Steps;
                Task::Exchange
            }
            Next::Steps => self.steps.pop_front().map_or(Task::Over, Task::Step),
        }
    }

    /// Where this member stands.
    #[must_use]
    pub fn standing(&self) -> &Standing {
        &self.own
    }

    /// Bytes of a slot: the operation's number, whether it is started, the prefix, and a bit for each
    /// segment of the window. All numbers are little-endian.
    #[must_use]
    pub fn slot_bytes(&self) -> usize {
        slot_bytes(self.window)
    }

    /// Writes this member's standing into its slot, which holds zeros.
    pub fn write_slot(&self, slot: &mut [u8]) {
        write(&self.own, slot);
    }

    /// Decides what is to be done from all members' slots, one behind the other. `whole` says into how many
    /// segments an operation is cut, and who gets its result; none if it is not known.
    ///
    /// # Errors
    /// If no group can come to this.
    ///
    /// # Panics
    /// If there is no slot.
    pub fn decide(
        &mut self,
        slots: &[u8],
        whole: impl FnOnce(OperationNumber) -> Option<(u32, Receivers)>,
    ) -> Result<(), Undecided> {
        self.standings = slots.chunks_exact(self.slot_bytes()).map(read).collect();
        if let Settlement::Finish(operation) = settle(&self.standings)? {
            let (segments, receivers) = whole(operation).ok_or(Undecided::Unknown(operation))?;
            self.finished = Some(operation);
            self.steps = steps(&self.standings, operation, segments, receivers).into();
        }
        Ok(())
    }

    /// Whether the operation that is finished is under way here. A member that is not behind has completed it.
    #[must_use]
    pub fn is_behind(&self) -> bool {
        self.finished == Some(self.own.operation)
    }

    /// The operation that is finished; none if what was under way is started again.
    #[must_use]
    pub fn finished_operation(&self) -> Option<OperationNumber> {
        self.finished
    }

    /// Whether a segment of the operation that is finished was incomplete here.
    #[must_use]
    pub fn lacks(&self, segment: u32) -> bool {
        self.is_behind() && !self.own.complete.contains(segment)
    }

    /// Whether some member has completed the operation that is finished: all of its vector was ready everywhere.
    #[must_use]
    pub fn has_some_completed(&self) -> bool {
        self.standings.iter().any(|standing| Some(standing.operation) != self.finished)
    }
}

/// Bytes of one standing.
fn slot_bytes(window: u16) -> usize {
    FIXED_BYTES + usize::from(window).div_ceil(8)
}

const FIXED_BYTES: usize = 9;

fn write(standing: &Standing, slot: &mut [u8]) {
    let (fixed, bits) = slot.split_at_mut(FIXED_BYTES);
    fixed[..4].copy_from_slice(&standing.operation.0.to_le_bytes());
    fixed[4] = u8::from(standing.is_started);
    fixed[5..].copy_from_slice(&standing.complete.prefix.to_le_bytes());
    for (index, is_complete) in standing.complete.window.iter().enumerate() {
        bits[index / 8] |= u8::from(*is_complete) << (index % 8);
    }
}

fn read(slot: &[u8]) -> Standing {
    let (fixed, bits) = slot.split_at(FIXED_BYTES);
    let number = |bytes: &[u8]| u32::from_le_bytes(bytes.try_into().expect("four bytes"));
    Standing {
        operation: OperationNumber(number(&fixed[..4])),
        is_started: fixed[4] == 1,
        complete: Segments {
            prefix: number(&fixed[5..]),
            window: (0..8 * bits.len()).map(|at| bits[at / 8] >> (at % 8) & 1 == 1).collect(),
        },
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    #[test]
    fn a_standing_arrives_as_it_was_told() {
        for window in [0, 1, 7, 8, 9, 64] {
            let standing = Standing {
                operation: OperationNumber(u32::MAX - 1),
                is_started: window % 2 == 0,
                complete: Segments {
                    prefix: 70_000,
                    window: (0..window).map(|at| at % 3 == 1).collect(),
                },
            };
            let mut slot = vec![0; slot_bytes(window)];
            write(&standing, &mut slot);
            let mut told = read(&slot);
            assert!(told.complete.window.drain(usize::from(window)..).all(|it| !it));
            assert_eq!(told, standing);
        }
    }

    #[test]
    fn an_operation_that_must_be_finished_has_to_be_known() {
        let own = Standing {
            operation: OperationNumber::FIRST,
            is_started: true,
            complete: Segments::default(),
        };
        let mut settler = Settler::new(own, 2);
        assert_eq!([settler.poll_task(), settler.poll_task()], [Task::Call, Task::Exchange]);
        let mut slots = vec![0; 2 * settler.slot_bytes()];
        slots.chunks_exact_mut(settler.slot_bytes()).for_each(|slot| settler.write_slot(slot));
        let unknown = Undecided::Unknown(OperationNumber::FIRST);
        assert_eq!(settler.decide(&slots, |_| None), Err(unknown));
        settler.decide(&slots, |_| Some((3, Receivers::All))).expect("one operation, known");
        assert!(matches!(settler.poll_task(), Task::Step(_)) && settler.is_behind());
        assert_eq!(settler.poll_task(), Task::Over);
    }
}
