//! The figures that decide where nobody has measured the system itself.

use std::sync::LazyLock;

use tributary_algorithms::CollectiveKind;
use tributary_tuning::{AlgorithmChoice, Measurement, Tuning};

/// The built-in figures are of up to 8 hosts, and say little of many more: steps between hosts grow
/// with their number, and a tree's depth hardly.
pub(super) const HOSTS_MAX: u32 = 16;

/// Longest vector for which one host in the middle is taken across a network: 8 hosts at 10 Gb/s, 0.02
/// ms each way for so much, 0.4 ms for 64 KiB.
const LINEAR_BYTES_MAX: u64 = 4096;

/// The figures of docs/decisions/0022, 0028 and 0032, taken on a lab.
pub(super) fn figures() -> &'static Tuning {
    static FIGURES: LazyLock<Tuning> = LazyLock::new(|| {
        Tuning::from_toml(include_str!("built_in.toml")).expect("a test reads the built-in figures")
    });
    &FIGURES
}

/// Whether a figure holds for hosts with a network between them. A linear algorithm's host in the middle
/// carries a vector once for every other host; on the machine of the figures that was no link but
/// memory.
pub(super) fn holds_across_links(row: &Measurement) -> bool {
    let carried_bytes = match row.collective {
        CollectiveKind::Allgather => row.len_bytes * u64::from(row.ranks),
        _ => row.len_bytes,
    };
    row.algorithm != AlgorithmChoice::Linear || carried_bytes <= LINEAR_BYTES_MAX
}

#[cfg(test)]
mod tests {
    use tributary_tuning::Method;

    use super::super::table::Table;
    use super::*;

    fn best(hosts: u32, len_bytes: u64, is_across_links: bool) -> Measurement {
        best_of(CollectiveKind::Allreduce, hosts, len_bytes, is_across_links)
    }

    fn best_of(
        kind: CollectiveKind,
        hosts: u32,
        len_bytes: u64,
        is_across_links: bool,
    ) -> Measurement {
        let rows = figures().measurements.iter();
        let rows = rows.filter(|row| !is_across_links || holds_across_links(row));
        *Table::fastest(rows, hosts, hosts).rule(kind, len_bytes).unwrap()
    }

    #[test]
    fn both_methods_are_there_and_the_tree_for_short_vectors_of_many_hosts() {
        for method in [Method::Tree, Method::Direct] {
            assert!(figures().measurements.iter().any(|row| row.method == method));
        }
        for (hosts, len_bytes, method) in [
            (3, 8, Method::Direct),
            (8, 8, Method::Tree),
            (16, 8, Method::Tree),
            (8, 1 << 24, Method::Direct),
        ] {
            let best = best(hosts, len_bytes, false);
            assert_eq!(best.method, method, "{hosts} hosts, {len_bytes} B");
        }
    }

    /// What carries whole vectors is for short ones.
    #[test]
    fn parts_go_through_the_tree_only_where_they_are_short() {
        use AlgorithmChoice::{Auto, Linear, RecursiveDoubling};
        use CollectiveKind::{Allgather, ReduceScatter, Scan};
        for hosts in [4, 8] {
            for kind in [ReduceScatter, Allgather, Scan] {
                assert_eq!(best_of(kind, hosts, 1 << 16, true).method, Method::Direct);
            }
            for kind in [ReduceScatter, Allgather] {
                assert_eq!(best_of(kind, hosts, 8, true).algorithm, Linear);
            }
        }
        // Not through one host: it would hand out the parts of all.
        for (kind, hosts, method, algorithm) in [
            (ReduceScatter, 4, Method::Direct, RecursiveDoubling),
            (Allgather, 4, Method::Direct, Auto),
            (ReduceScatter, 8, Method::Tree, Auto),
            (Allgather, 8, Method::Direct, Auto),
        ] {
            let best = best_of(kind, hosts, 1 << 14, true);
            assert_eq!(
                (best.method, best.algorithm),
                (method, algorithm),
                "{kind:?}, {hosts} hosts"
            );
        }
        assert_eq!(best_of(Scan, 8, 8, true).method, Method::Tree);
    }

    #[test]
    fn across_links_no_long_vector_goes_through_one_host() {
        for hosts in [4, 8] {
            assert_eq!(best(hosts, 1 << 14, false).algorithm, AlgorithmChoice::Linear);
            assert_ne!(best(hosts, 1 << 14, true).algorithm, AlgorithmChoice::Linear);
            assert_eq!(best(hosts, 8, true), best(hosts, 8, false));
        }
    }
}
