//! Why a GOAL file is refused. Every message is one line.

/// Why a file was refused: the file is at fault, in the line named.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum GoalError {
    /// Something else stands where the format wants one thing.
    #[error("line {line}: {found}; allowed: {allowed}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What stands there.
        found: String,
        /// What may.
        allowed: &'static str,
    },
    /// A number is too large.
    #[error("line {line}: {what} is {value}; allowed: up to {max}")]
    TooLarge {
        /// The line, from 1.
        line: usize,
        /// What the number says.
        what: &'static str,
        /// The number.
        value: u64,
        /// The largest.
        max: u64,
    },
    /// A dependency names a label that no earlier line has.
    #[error("line {line}: no operation is called `{label}`; allowed: a label of an earlier line")]
    NoLabel {
        /// The line, from 1.
        line: usize,
        /// The label.
        label: String,
    },
    /// Two operations of a rank have one label, or two sections are of one rank.
    #[error("line {line}: {what} a second time; allowed: once")]
    Twice {
        /// The line, from 1.
        line: usize,
        /// What.
        what: String,
    },
}
