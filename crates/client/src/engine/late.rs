//! The line about a rank that its host waits for.

use std::io::{self, Write as _};

use tributary_shm_collectives::Late;

use crate::placement::Placement;

/// Returns what writes that line, to standard error.
pub(super) fn late_rank_reporter(
    label: &str,
    placement: &Placement,
) -> impl FnMut(Late) + Send + 'static {
    let (label, me) = (label.to_owned(), placement.rank);
    let host = placement.hosts[placement.host() as usize].clone();
    let ranks = placement.ranks_of(placement.host()).to_vec();
    move |Late { local_rank, waited }| {
        let rank = ranks[local_rank as usize];
        // Where it can't be written there is nobody to read it.
        let _ = writeln!(
            io::stderr().lock(),
            "tributary: rank {rank} of `{label}` on {host} is late: rank {me} has waited for {:.0} s for it to come \
             to a collective",
            waited.as_secs_f64()
        );
    }
}
