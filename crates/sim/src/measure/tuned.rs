//! The algorithm that hosts use for a collective among themselves.

use tributary_algorithms::{Algorithm, CollectiveKind};

use crate::preset::Preset;

/// The tuned algorithm of a preset for a vector of `bytes` bytes: recursive k-ing and trees of the preset's
/// radix for short vectors, algorithms that move no byte twice for long ones.
#[must_use]
pub fn tuned(preset: &Preset, kind: CollectiveKind, bytes: usize) -> Algorithm {
    let radix = preset.software.radix.count().max(2);
    let is_long = bytes >= preset.software.long_min.bytes();
    match kind {
        CollectiveKind::Allreduce | CollectiveKind::Reduce if is_long => Algorithm::Rabenseifner,
        CollectiveKind::Allreduce => Algorithm::RecursiveKing { radix },
        CollectiveKind::Broadcast if is_long => Algorithm::Ring,
        CollectiveKind::Reduce | CollectiveKind::Broadcast => Algorithm::Knomial { radix },
        CollectiveKind::Barrier => Algorithm::Dissemination,
        CollectiveKind::Allgather | CollectiveKind::ReduceScatter if is_long => Algorithm::Ring,
        CollectiveKind::Allgather => Algorithm::Dissemination,
        CollectiveKind::ReduceScatter | CollectiveKind::Scan | CollectiveKind::Exscan => {
            Algorithm::RecursiveDoubling
        }
    }
}
