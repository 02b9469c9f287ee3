//! Up to what length collectives inside one host are taken: beyond it the underlying MPI is faster.

use tributary_algorithms::CollectiveKind;

use crate::bootstrap::{Bootstrap, BootstrapError};
use crate::settings::Settings;

/// Longest contributions, in bytes; the same at all ranks of a communicator. Zero, so nothing, on
/// communicators of several hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Limits {
    reduce_scatter_bytes: u64,
    allgather_bytes: u64,
    scan_bytes: u64,
}

impl Limits {
    /// What one rank's settings say.
    pub(crate) fn of(settings: &Settings) -> Self {
        Self {
            reduce_scatter_bytes: settings.reduce_scatter_max_bytes,
            allgather_bytes: settings.allgather_max_bytes,
            scan_bytes: settings.scan_max_bytes,
        }
    }

    /// What rank 0's settings say, at all ranks.
    pub(crate) fn agree(
        bootstrap: &mut dyn Bootstrap,
        settings: &Settings,
    ) -> Result<Self, BootstrapError> {
        let Self { reduce_scatter_bytes, allgather_bytes, scan_bytes } = Self::of(settings);
        let mine = [reduce_scatter_bytes, allgather_bytes, scan_bytes];
        let mut bytes = mine.map(u64::to_le_bytes).concat();
        bootstrap.broadcast(0, &mut bytes)?;
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().expect("eight"));
        Ok(Self { reduce_scatter_bytes: word(0), allgather_bytes: word(1), scan_bytes: word(2) })
    }

    /// The limit of one kind; none for those that are taken at any length, and between hosts too.
    pub(crate) fn longest_bytes(self, kind: CollectiveKind) -> Option<u64> {
        match kind {
            CollectiveKind::ReduceScatter => Some(self.reduce_scatter_bytes),
            CollectiveKind::Allgather => Some(self.allgather_bytes),
            CollectiveKind::Scan | CollectiveKind::Exscan => Some(self.scan_bytes),
            CollectiveKind::Allreduce
            | CollectiveKind::Reduce
            | CollectiveKind::Barrier
            | CollectiveKind::Broadcast => None,
        }
    }
}

/// Whether a collective runs inside one host only: between hosts it is left to the underlying MPI.
pub(crate) fn is_on_one_host_only(kind: CollectiveKind) -> bool {
    Limits::default().longest_bytes(kind).is_some()
}
