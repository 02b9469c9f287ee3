//! Whether the aggregation node at the other end of the link still answers.
//!
//! An aggregator that dies closes its link. One that is stopped, or whose host lost its power, says nothing, and so
//! does an aggregator that waits for other members. A member that has waited for a while therefore asks over the
//! link, which the aggregator answers whatever its groups do. An aggregator that is asked asks its parent in turn: so a
//! tree is doubted up to its root, wherever it is stuck, and while nobody waits no question travels. Questions
//! are counted, not time: this process may itself have had no core.

use crate::Time;

/// How long a silent aggregator is waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Shortest distance between two questions.
    question_ns: u64,
    /// Questions in a row without an answer after which the aggregator is given up.
    questions_max: u8,
}

impl Patience {
    /// With an aggregator of which nothing is known: 7 questions, 200 ms apart.
    pub const USUAL: Self = Self { question_ns: 200_000_000, questions_max: 7 };
    /// With an aggregator that may be the one which another tree has just lost: three questions, 100 ms apart.
    pub const SUSPICIOUS: Self = Self { question_ns: 100_000_000, questions_max: 3 };
    /// With an aggregator that another member has just given up: one question, and 50 ms for its answer.
    pub const WARNED: Self = Self { question_ns: 50_000_000, questions_max: 1 };
}

/// What a member, or an aggregator below another, knows of the life of its aggregator.
#[derive(Debug, Default)]
pub(crate) struct NodeLiveness {
    asked_at: Option<Time>,
    unanswered: u8,
    /// The question is to be sent.
    is_due: bool,
}

impl NodeLiveness {
    /// Something has come from the aggregator.
    pub(crate) fn on_frame(&mut self) {
        self.unanswered = 0;
    }

    /// Asks, unless that was just done. `false` if the aggregator has left too many questions unanswered.
    pub(crate) fn ask(&mut self, now: Time, patience: Patience) -> bool {
        if self.asked_at.is_some_and(|asked_at| now.since_ns(asked_at) < patience.question_ns) {
            return true;
        }
        if self.unanswered >= patience.questions_max {
            return false;
        }
        self.unanswered += 1;
        self.asked_at = Some(now);
        self.is_due = true;
        true
    }

    /// Whether nothing has come since the last question.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.unanswered > 0
    }

    /// The number of the question to send now, if one is.
    pub(crate) fn question(&self) -> Option<u8> {
        self.is_due.then_some(self.unanswered)
    }

    /// The question has been sent.
    pub(crate) fn on_asked(&mut self) {
        self.is_due = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUESTION_NS: u64 = Patience::USUAL.question_ns;
    const QUESTIONS_MAX: u8 = Patience::USUAL.questions_max;

    fn ask(node: &mut NodeLiveness, at_ns: u64) -> bool {
        node.ask(Time(at_ns), Patience::USUAL)
    }

    #[test]
    fn only_questions_that_had_their_time_count() {
        let mut node = NodeLiveness::default();
        let at = |number: u64| 5 + number * QUESTION_NS;
        for number in 0..u64::from(QUESTIONS_MAX) {
            assert!(ask(&mut node, at(number)));
            assert_eq!(node.question(), Some(number as u8 + 1));
            node.on_asked();
            // However often it is called, and with whatever it had to wait for a core.
            assert!(ask(&mut node, at(number)) && ask(&mut node, at(number + 1) - 1));
            assert_eq!(node.question(), None);
        }
        assert!(!ask(&mut node, at(u64::from(QUESTIONS_MAX))));
    }

    #[test]
    fn whatever_comes_is_a_sign_of_life() {
        let mut node = NodeLiveness::default();
        for number in 0..100 {
            assert!(ask(&mut node, number * QUESTION_NS));
            if number % u64::from(QUESTIONS_MAX) == 0 {
                node.on_frame();
            }
        }
    }

    #[test]
    fn a_question_that_the_link_does_not_take_counts() {
        let mut node = NodeLiveness::default();
        let asked = (0..100).take_while(|number| ask(&mut node, number * QUESTION_NS)).count();
        assert_eq!(asked, usize::from(QUESTIONS_MAX));
    }

    #[test]
    fn a_warned_member_asks_once_and_does_not_wait_long() {
        let mut node = NodeLiveness::default();
        let wait_ns = Patience::WARNED.question_ns;
        assert!(
            node.ask(Time(0), Patience::WARNED) && node.ask(Time(wait_ns - 1), Patience::WARNED)
        );
        assert!(node.awaits_answer());
        node.on_frame();
        assert!(!node.awaits_answer());
        assert!(node.ask(Time(wait_ns), Patience::WARNED), "it has answered");
        assert!(!node.ask(Time(2 * wait_ns), Patience::WARNED));
    }
}
