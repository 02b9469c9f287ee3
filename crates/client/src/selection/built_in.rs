//! The figures that decide where nobody has measured the system itself.

use std::sync::LazyLock;

use tributary_algorithms::CollectiveKind;
use tributary_tuning::{AlgorithmChoice, Measurement, Method, Tuning};

/// The built-in figures are of up to 8 hosts. Up to so many they hold as they are; of more they say less.
pub(super) const FEW_HOSTS_MAX: u32 = 16;

/// Longest vector of a figure that speaks for the tree of many hosts, what nodes take inside the kernel: a node's link
/// carries the vectors of all hosts below, a host's own at most two, however many there are (docs/decisions/0044).
const TREE_BYTES_MAX: u64 = 1024;

/// Longest vector for which one host in the middle is taken across a network: 8 hosts at 10 Gb/s, 0.02
/// ms each way for so much, 0.4 ms for 64 KiB.
const LINEAR_BYTES_MAX: u64 = 4096;

/// What nodes inside the kernel take of the time that processes take, for up to so many bytes: 0.7 at 8 B and 0.9 at
/// 256 B, with 4 hosts and with 8 (docs/benchmarks.md). Longer vectors gain nothing.
const KERNEL_SHARE: f64 = 0.7;
const KERNEL_BYTES_MAX: u64 = 256;

/// The figures that say something of `hosts` hosts, which share a kernel or have a network between them.
pub(super) fn figures_of(hosts: u32, share_a_kernel: bool) -> Vec<Measurement> {
    let rows = figures().measurements.iter().copied();
    if share_a_kernel {
        return rows.collect();
    }
    let rows = rows.filter_map(across_links);
    if hosts <= FEW_HOSTS_MAX {
        rows.collect()
    } else {
        rows.filter_map(|row| of_many(hosts, row)).collect()
    }
}

/// What a figure of few hosts says of many. Which host algorithm is the fastest depends on their number, so the model
/// says it.
fn of_many(hosts: u32, row: Measurement) -> Option<Measurement> {
    match row.method {
        Method::Tree => (carried_bytes(&row, hosts) <= TREE_BYTES_MAX).then_some(row),
        Method::Direct if row.algorithm == AlgorithmChoice::Linear => None,
        Method::Direct => Some(Measurement { algorithm: AlgorithmChoice::Auto, ..row }),
    }
}

/// What figures of nodes that are processes say of nodes inside the kernel.
pub(super) fn inside_the_kernel(rows: &[Measurement]) -> Vec<Measurement> {
    let inside = |row: &Measurement| {
        let is_faster =
            row.method == Method::Tree && carried_bytes(row, row.hosts) <= KERNEL_BYTES_MAX;
        let share = if is_faster { KERNEL_SHARE } else { 1.0 };
        Measurement { time_us: row.time_us * share, ..*row }
    };
    rows.iter().map(inside).collect()
}

/// The length of the vector between hosts: where each has a part of its own, or must know those of all before it, the
/// vector is that of all.
fn carried_bytes(row: &Measurement, hosts: u32) -> u64 {
    use CollectiveKind::{Allgather, Exscan, Scan};
    match row.collective {
        Allgather | Scan | Exscan => row.len_bytes * u64::from(hosts),
        _ => row.len_bytes,
    }
}

/// The figures of docs/decisions/0022, 0028, 0032 and 0044, taken on a lab.
fn figures() -> &'static Tuning {
    static FIGURES: LazyLock<Tuning> = LazyLock::new(|| {
        Tuning::from_toml(include_str!("built_in.toml")).expect("a test reads the built-in figures")
    });
    &FIGURES
}

/// What a figure says of hosts with a network between them; nothing if it does not hold there. A linear algorithm's
/// host in the middle carries a vector once for every other host, and the root of a binomial broadcast once for every
/// round; on the machine of the figures that was no link but memory. So there the model says up to what length one root
/// sends it.
fn across_links(row: Measurement) -> Option<Measurement> {
    use AlgorithmChoice::{Auto, Binomial, Linear};
    match (row.collective, row.algorithm) {
        (_, Linear) => (carried_bytes(&row, row.hosts) <= LINEAR_BYTES_MAX).then_some(row),
        (CollectiveKind::Broadcast, Binomial) => Some(Measurement { algorithm: Auto, ..row }),
        _ => Some(row),
    }
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
        let rows = figures_of(hosts, !is_across_links);
        *Table::fastest(&rows, hosts, hosts).rule(kind, len_bytes).unwrap()
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

    #[test]
    fn nodes_inside_the_kernel_are_faster_than_one_host_in_the_middle() {
        use CollectiveKind::{Allgather, Allreduce, Barrier, Broadcast, Reduce, ReduceScatter};
        let method = |kind, hosts, len_bytes| {
            let rows = inside_the_kernel(&figures_of(hosts, false));
            Table::fastest(&rows, hosts, hosts).rule(kind, len_bytes).unwrap().method
        };
        for hosts in 3..=16 {
            assert_eq!(method(Allreduce, hosts, 8), Method::Tree, "{hosts} hosts");
            assert_eq!(method(Barrier, hosts, 0), Method::Tree, "{hosts} hosts");
            assert_eq!(method(Allgather, hosts, 8), Method::Tree, "{hosts} hosts");
        }
        for (kind, len_bytes) in [
            (Allreduce, 4096),
            (Allreduce, 1 << 20),
            (Reduce, 8),
            (ReduceScatter, 8),
            (Broadcast, 8),
        ] {
            assert_eq!(method(kind, 4, len_bytes), Method::Direct, "{kind:?} of {len_bytes} B");
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
    fn many_hosts_send_short_vectors_through_the_tree_and_long_ones_by_what_suits_their_number() {
        use CollectiveKind::{
            Allgather, Allreduce, Barrier, Broadcast, Reduce, ReduceScatter, Scan,
        };
        let choice = |kind, hosts, len_bytes| {
            let best = best_of(kind, hosts, len_bytes, true);
            (best.method, best.algorithm)
        };
        let (tree, direct) = (Method::Tree, (Method::Direct, AlgorithmChoice::Auto));
        for hosts in [17, 64, 1024] {
            for (kind, len_bytes) in [(Barrier, 0), (Allreduce, 8), (Allreduce, 1024)] {
                assert_eq!(choice(kind, hosts, len_bytes).0, tree, "{kind:?}, {hosts} hosts");
            }
            for kind in [Allreduce, Reduce, ReduceScatter, Allgather, Scan] {
                assert_eq!(choice(kind, hosts, 4096), direct, "{kind:?}, {hosts} hosts");
            }
        }
        assert_eq!(choice(Broadcast, 64, 8).0, tree);
        assert_eq!(choice(Broadcast, 64, 1 << 20), direct);
        // The vector has a part of every host.
        assert_eq!(choice(Allgather, 17, 8).0, tree);
        assert_eq!(choice(Allgather, 1024, 8), direct);
        assert_eq!(choice(Scan, 1024, 8), direct);
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
