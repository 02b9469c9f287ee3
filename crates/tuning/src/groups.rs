//! What was measured of replicated groups, whose hosts can be divided into levels in several ways.

use tributary_algorithms::{CollectiveKind, Leaves, Radices};

use crate::file::Measurement;

/// The levels that were measured to be the fastest of those that divide these hosts; none where none were.
#[must_use]
pub fn fastest_levels(rows: &[Measurement], leaves: &Leaves) -> Option<Radices> {
    let is_here = |radices: &Radices| leaves.groups(*radices).is_some();
    let of_groups = || rows.iter().filter(|row| row.groups.as_ref().is_some_and(is_here));
    let case = |row: &Measurement| {
        (row.collective != CollectiveKind::Allreduce, row.collective, row.len_bytes)
    };
    let short = of_groups().map(case).min()?;
    let of_short = of_groups().filter(|row| case(row) == short);
    of_short.min_by(|one, other| one.time_us.total_cmp(&other.time_us))?.groups
}

/// What was measured, of groups in these levels alone. A communicator has groups in one way, so what others took tells nothing;
/// but where these levels were not measured, others stand for them.
#[must_use]
pub fn rows_of_levels(rows: Vec<Measurement>, levels: Option<Radices>) -> Vec<Measurement> {
    let is_measured = rows.iter().any(|row| row.groups.is_some() && row.groups == levels);
    let is_of_them = |row: &Measurement| row.groups.is_none() || row.groups == levels;
    rows.into_iter().filter(|row| !is_measured || is_of_them(row)).collect()
}
