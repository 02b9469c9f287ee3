//! Up to what length collectives are taken: beyond it the underlying MPI is faster.

use serde::{Deserialize, Serialize};
use tributary_algorithms::CollectiveKind;

use crate::bootstrap::{Bootstrap, BootstrapError};
use crate::settings::Settings;

/// Longest contributions, in bytes; the same at all ranks of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Limits {
    reduce_scatter_bytes: u64,
    allgather_bytes: u64,
    scan_bytes: u64,
}

impl Limits {
    /// What one rank's settings say of communicators of one host.
    pub(crate) fn on_one_host(settings: &Settings) -> Self {
        Self {
            reduce_scatter_bytes: settings.reduce_scatter_max_bytes,
            allgather_bytes: settings.allgather_max_bytes,
            scan_bytes: settings.scan_max_bytes,
        }
    }

    /// What they say of those of several.
    pub(crate) fn between_hosts(settings: &Settings) -> Self {
        Self {
            reduce_scatter_bytes: settings.between_reduce_scatter_max_bytes,
            allgather_bytes: settings.between_allgather_max_bytes,
            scan_bytes: settings.between_scan_max_bytes,
        }
    }

    /// The same where the scans of `ranks` ranks gather all their vectors: the limit is of all together.
    pub(crate) fn with_scans_gathered(self, ranks: u32) -> Self {
        let scan_bytes = match self.scan_bytes {
            u64::MAX => u64::MAX,
            all_bytes => all_bytes / u64::from(ranks.max(1)),
        };
        Self { scan_bytes, ..self }
    }

    /// What rank 0's settings say of one host, at all ranks.
    pub(crate) fn agree(
        bootstrap: &mut dyn Bootstrap,
        settings: &Settings,
    ) -> Result<Self, BootstrapError> {
        let Self { reduce_scatter_bytes, allgather_bytes, scan_bytes } =
            Self::on_one_host(settings);
        let mine = [reduce_scatter_bytes, allgather_bytes, scan_bytes];
        let mut bytes = mine.map(u64::to_le_bytes).concat();
        bootstrap.broadcast(0, &mut bytes)?;
        let word = |at: usize| u64::from_le_bytes(bytes[8 * at..][..8].try_into().expect("eight"));
        Ok(Self { reduce_scatter_bytes: word(0), allgather_bytes: word(1), scan_bytes: word(2) })
    }

    /// The limit of one kind; none for those that are taken at any length.
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
