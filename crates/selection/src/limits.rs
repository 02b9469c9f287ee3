//! Up to what length collectives are taken: beyond it the underlying MPI is faster.

use tributary_algorithms::CollectiveKind;

use tributary_settings::{LongestBytes, Settings};

/// The tree carries whole vectors, and host algorithms the parts of each host: where long ones go through
/// the tree, only vectors up to this length do (docs/decisions/0031).
const WHOLE_BYTES_MAX: u64 = 32 << 10;

/// Inside a host longer contributions to an allgather are faster in the MPIs (docs/decisions/0017).
const ALLGATHER_BYTES_MAX: u64 = 4 << 10;

/// Longest contributions, in bytes; the same at all ranks of a communicator.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    reduce_scatter_bytes: u64,
    allgather_bytes: u64,
    scan_bytes: u64,
}

impl Limits {
    /// What they take as bytes.
    pub const BYTES: usize = 24;

    /// What one rank's settings say of communicators of one host.
    #[must_use]
    pub fn on_one_host(settings: &Settings) -> Self {
        let LongestBytes { reduce_scatter, allgather, scan } = settings.offload_max.inside;
        Self {
            reduce_scatter_bytes: reduce_scatter.unwrap_or(u64::MAX),
            allgather_bytes: allgather.unwrap_or(ALLGATHER_BYTES_MAX),
            scan_bytes: scan.unwrap_or(u64::MAX),
        }
    }

    /// Those of a communicator of several hosts. `times_in_tree` tells how many contributions a long one becomes in the tree, or
    /// none if it takes direct links; `gathered` how many ranks' vectors a scan gathers, where it does.
    pub(crate) fn between_hosts(
        asked: LongestBytes,
        gathered: Option<u32>,
        mut times_in_tree: impl FnMut(CollectiveKind) -> Option<u64>,
    ) -> Self {
        let mut limit = |asked: Option<u64>, kind| {
            let by_path = || times_in_tree(kind).map_or(u64::MAX, |times| WHOLE_BYTES_MAX / times);
            asked.unwrap_or_else(by_path)
        };
        // What is asked for counts all vectors that are gathered.
        let is_bounded = |bytes: &u64| *bytes != u64::MAX;
        let of_one = |bytes: u64| bytes / u64::from(gathered.unwrap_or(1).max(1));
        let scan = asked.scan.map(|bytes| Some(bytes).filter(is_bounded).map_or(u64::MAX, of_one));
        Self {
            reduce_scatter_bytes: limit(asked.reduce_scatter, CollectiveKind::ReduceScatter),
            allgather_bytes: limit(asked.allgather, CollectiveKind::Allgather),
            scan_bytes: limit(scan, CollectiveKind::Scan),
        }
    }

    /// As one rank sends them to the others.
    #[must_use]
    pub fn to_bytes(self) -> [u8; Self::BYTES] {
        let limits = [self.reduce_scatter_bytes, self.allgather_bytes, self.scan_bytes];
        let mut bytes = [0; Self::BYTES];
        for (field, limit) in bytes.as_chunks_mut().0.iter_mut().zip(limits) {
            *field = limit.to_le_bytes();
        }
        bytes
    }

    /// Those that [`Limits::to_bytes`] wrote.
    #[must_use]
    pub fn from_bytes(bytes: [u8; Self::BYTES]) -> Self {
        let limit = |at: usize| u64::from_le_bytes(bytes.as_chunks().0[at]);
        Self { reduce_scatter_bytes: limit(0), allgather_bytes: limit(1), scan_bytes: limit(2) }
    }

    /// The limit of one kind; none for those that are taken at any length.
    #[must_use]
    pub fn longest_bytes(self, kind: CollectiveKind) -> Option<u64> {
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
