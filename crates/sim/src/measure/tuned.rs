//! The algorithm that hosts use for a collective among themselves.
//!
//! Owns the switch points of MPI libraries, each with its source.

use tributary_algorithms::{Algorithm, CollectiveKind};

use crate::preset::{Library, Preset};

/// The algorithm that the preset's library takes for a collective of `ranks` ranks whose whole vector has
/// `bytes` bytes.
///
/// A library's own choice is used for allreduce, reduce, broadcast, barrier and allgather, where it is an
/// algorithm that [`Algorithm`] has. Else the preset's `radix` and `long_min` decide.
#[must_use]
pub fn choose_algorithm(
    preset: &Preset,
    kind: CollectiveKind,
    bytes: usize,
    ranks: u32,
) -> Algorithm {
    let of_library = match preset.software.library {
        Library::Tuned => None,
        Library::Mpich => mpich(kind, bytes, ranks),
        Library::OpenMpi => open_mpi(kind, bytes, ranks),
    };
    of_library.unwrap_or_else(|| by_length(preset, kind, bytes))
}

/// Recursive k-ing and trees of the preset's radix for short vectors, algorithms that move no byte twice for
/// long ones.
fn by_length(preset: &Preset, kind: CollectiveKind, bytes: usize) -> Algorithm {
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

/// MPICH's choice: Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in
/// MPICH" (IJHPCA 2005), and the documented defaults of `MPIR_CVAR_ALLREDUCE_SHORT_MSG_SIZE` (2,048),
/// `MPIR_CVAR_REDUCE_SHORT_MSG_SIZE` (2,048), `MPIR_CVAR_BCAST_SHORT_MSG_SIZE` (12,288),
/// `MPIR_CVAR_BCAST_MIN_PROCS` (8), `MPIR_CVAR_ALLGATHER_SHORT_MSG_SIZE` (81,920) and
/// `MPIR_CVAR_ALLGATHER_LONG_MSG_SIZE` (524,288).
///
/// Up to 512 KiB on a power of two of ranks MPICH's broadcast gathers by recursive doubling and not around a
/// ring; its allgather does so as well, in as many rounds as Bruck's.
fn mpich(kind: CollectiveKind, bytes: usize, ranks: u32) -> Option<Algorithm> {
    let has_share_for_each = bytes / ELEMENT_BYTES >= largest_power(ranks) as usize;
    let is_halved = bytes > 2048 && has_share_for_each;
    match kind {
        CollectiveKind::Allreduce | CollectiveKind::Reduce if is_halved => {
            Some(Algorithm::Rabenseifner)
        }
        CollectiveKind::Allreduce => Some(Algorithm::RecursiveDoubling),
        CollectiveKind::Reduce => Some(Algorithm::Binomial),
        CollectiveKind::Broadcast if bytes < 12_288 || ranks < 8 => Some(Algorithm::Binomial),
        CollectiveKind::Broadcast => Some(Algorithm::Ring),
        CollectiveKind::Barrier => Some(Algorithm::Dissemination),
        CollectiveKind::Allgather => {
            let short_below = if ranks.is_power_of_two() { 524_288 } else { 81_920 };
            Some(if bytes < short_below { Algorithm::Dissemination } else { Algorithm::Ring })
        }
        CollectiveKind::ReduceScatter | CollectiveKind::Scan | CollectiveKind::Exscan => None,
    }
}

/// Open MPI's choice: the fixed decisions of its component `coll/tuned`, versions 1.2 to 4.0, which go back
/// to Pjesivac-Grbovic, Angskun, Bosilca, Fagg, Gabriel and Dongarra, "Performance analysis of MPI collective
/// operations" (Cluster Computing 2007). From 4.1 on they are tables of another machine.
///
/// Its pipelined trees and chains, for longer broadcasts and for reduces, are not among the algorithms here.
/// A barrier of a power of two of ranks takes as many rounds by recursive doubling as by dissemination, and
/// half as many neighbour exchanges move the bytes of a ring's rounds.
fn open_mpi(kind: CollectiveKind, bytes: usize, ranks: u32) -> Option<Algorithm> {
    match kind {
        CollectiveKind::Allreduce if bytes < 10_000 => Some(Algorithm::RecursiveDoubling),
        CollectiveKind::Allreduce if bytes / ELEMENT_BYTES > ranks as usize => {
            Some(Algorithm::Ring)
        }
        CollectiveKind::Allreduce => Some(Algorithm::Binomial),
        CollectiveKind::Broadcast if bytes < 2048 => Some(Algorithm::Binomial),
        CollectiveKind::Barrier => Some(Algorithm::Dissemination),
        CollectiveKind::Allgather if bytes < 50_000 => Some(Algorithm::Dissemination),
        CollectiveKind::Allgather => Some(Algorithm::Ring),
        CollectiveKind::Broadcast
        | CollectiveKind::Reduce
        | CollectiveKind::ReduceScatter
        | CollectiveKind::Scan
        | CollectiveKind::Exscan => None,
    }
}

/// Bytes of an element: what is simulated are sums of 32-bit integers.
const ELEMENT_BYTES: usize = 4;

/// The largest power of two that is no more than `ranks`.
fn largest_power(ranks: u32) -> u32 {
    1 << ranks.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset;

    fn of_library(library: &str, kind: CollectiveKind, bytes: usize, ranks: u32) -> Algorithm {
        let text =
            format!("name = \"mine\"\nbase = \"edr\"\n[software]\nlibrary = \"{library}\"\n");
        choose_algorithm(&preset::read(&text).unwrap(), kind, bytes, ranks)
    }

    #[test]
    fn libraries_switch_where_they_say() {
        use Algorithm::{Binomial, Dissemination, Rabenseifner, RecursiveDoubling, Ring};
        use CollectiveKind::{Allgather, Allreduce, Barrier, Broadcast, Reduce};
        for (library, kind, bytes, ranks, algorithm) in [
            ("mpich", Allreduce, 2048, 64, RecursiveDoubling),
            ("mpich", Allreduce, 2052, 64, Rabenseifner),
            ("mpich", Allreduce, 2052, 1024, RecursiveDoubling),
            ("mpich", Reduce, 2048, 64, Binomial),
            ("mpich", Reduce, 4096, 64, Rabenseifner),
            ("mpich", Broadcast, 12_287, 64, Binomial),
            ("mpich", Broadcast, 12_288, 64, Ring),
            ("mpich", Broadcast, 1 << 20, 7, Binomial),
            ("mpich", Allgather, 100_000, 64, Dissemination),
            ("mpich", Allgather, 100_000, 63, Ring),
            ("open-mpi", Allreduce, 9_999, 64, RecursiveDoubling),
            ("open-mpi", Allreduce, 10_000, 64, Ring),
            ("open-mpi", Allreduce, 10_000, 2_500, Binomial),
            ("open-mpi", Broadcast, 2_047, 64, Binomial),
            ("open-mpi", Barrier, 0, 64, Dissemination),
            ("open-mpi", Allgather, 49_999, 64, Dissemination),
            ("open-mpi", Allgather, 50_000, 64, Ring),
        ] {
            let chosen = of_library(library, kind, bytes, ranks);
            assert_eq!(chosen, algorithm, "{library}, {kind:?}, {bytes} B, {ranks} ranks");
        }
    }

    #[test]
    fn what_a_library_does_by_other_means_is_as_the_preset_says() {
        for (kind, bytes) in [(CollectiveKind::Reduce, 8), (CollectiveKind::Broadcast, 1 << 20)] {
            assert_eq!(
                of_library("open-mpi", kind, bytes, 64),
                of_library("tuned", kind, bytes, 64)
            );
        }
        let wrong = "name = \"mine\"\nbase = \"edr\"\n[software]\nlibrary = \"other\"\n";
        let error = preset::read(wrong).unwrap_err().to_string();
        assert!(error.contains("software.library") && error.contains("open-mpi"), "{error}");
    }
}
