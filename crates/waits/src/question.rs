//! When a host asks the one that it waits for whether they are in the same operation.
//!
//! Hosts whose programs call different operations carry out different schedules. Then they may wait for each other in a
//! circle, each for a frame that its partner never sends. In such a circle there is always a host that waits for one that
//! called something else, or the schedules would fit together. So it suffices that a host says to the one that it waits
//! for what it called: once in an operation, for links lose nothing.

/// How long a host waits before it asks. A late partner costs one frame more; a disagreement is found this much later than
/// it could be.
pub const QUESTION_PATIENCE_NS: u64 = 100_000_000;

/// What one host has asked another that it waits for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Question {
    wait: Option<Wait>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    operation: u32,
    since_ns: u64,
    is_asked: bool,
}

impl Question {
    /// Whether to ask now, as this host waits for the other in this operation. The first call begins the wait.
    pub fn is_due(&mut self, operation: u32, now_ns: u64) -> bool {
        match self.wait.filter(|wait| wait.operation == operation) {
            Some(wait) => {
                !wait.is_asked && now_ns.saturating_sub(wait.since_ns) >= QUESTION_PATIENCE_NS
            }
            None => {
                self.wait = Some(Wait { operation, since_ns: now_ns, is_asked: false });
                false
            }
        }
    }

    /// The other host is in this operation, too: something of it has come. A question would be one too many, and may
    /// find the other gone, which then takes back what it sent last.
    pub fn on_answered(&mut self, operation: u32) {
        self.wait = Some(Wait { operation, since_ns: 0, is_asked: true });
    }

    /// The question is on its way.
    pub fn on_asked(&mut self) {
        if let Some(wait) = &mut self.wait {
            wait.is_asked = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_asks_once_in_an_operation_and_again_in_the_next() {
        let mut question = Question::default();
        for (operation, begin) in [(7, 5), (8, 5 + QUESTION_PATIENCE_NS)] {
            assert!(!question.is_due(operation, begin));
            assert!(!question.is_due(operation, begin + QUESTION_PATIENCE_NS - 1));
            // The link had no room.
            assert!(question.is_due(operation, begin + QUESTION_PATIENCE_NS));
            assert!(question.is_due(operation, begin + QUESTION_PATIENCE_NS));
            question.on_asked();
            assert!(!question.is_due(operation, u64::MAX));
        }
    }

    #[test]
    fn a_host_that_was_heard_of_is_not_asked() {
        let mut question = Question::default();
        assert!(!question.is_due(7, 0));
        question.on_answered(7);
        assert!(!question.is_due(7, u64::MAX));
        assert!(!question.is_due(8, 0));
        assert!(question.is_due(8, QUESTION_PATIENCE_NS));
    }
}
