//! A request that has no answer, and what is known of it.

use tributary_wire::Sequence;

use crate::{Carrier, Time};

/// A request that has been sent and not answered.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) sequence: Sequence,
    pub(super) first_sent: Time,
    pub(super) last_sent: Time,
    /// When it is repeated, unless something happens before; none once it went over the link.
    pub(super) due: Option<Time>,
    /// The interval between the last two attempts.
    pub(super) interval_ns: u64,
    pub(super) attempt: u8,
    /// Waits to be sent again.
    pub(super) is_due: bool,
    /// Whether evidence of its loss was used. It is used once; after that the timer repeats it.
    pub(super) had_fast_retransmit: bool,
    /// Attempts in a row after which no datagram came.
    pub(super) unanswered: u8,
}

/// A request to be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Repeat {
    pub(crate) sequence: Sequence,
    pub(crate) attempt: u8,
    pub(crate) carrier: Carrier,
}
