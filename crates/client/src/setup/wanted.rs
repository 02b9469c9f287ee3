//! What a set-up begins with.

use tributary_settings::Sums;

/// What this rank wants of a communicator. Rank 0's word on sums counts.
#[derive(Clone, Copy)]
pub(crate) struct Wanted<'a> {
    pub(crate) label: &'a str,
    pub(crate) sums: Sums,
}
