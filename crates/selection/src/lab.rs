//! The figures that decide between hosts of one kernel, which share its cores and have no network between them:
//! medians of a lab.

use std::sync::LazyLock;

use tributary_algorithms::CollectiveKind;
use tributary_tuning::{Measurement, Method, Tuning};

/// What aggregators inside the kernel take of the time that processes take, for up to so many bytes: 0.7 at 8 B and 0.9
/// at 256 B, with 4 hosts and with 8 (docs/benchmarks.md). Longer vectors gain nothing.
const KERNEL_SHARE: f64 = 0.7;
const KERNEL_BYTES_MAX: u64 = 256;

/// The figures of docs/decisions/0022, 0028, 0032 and 0044.
pub(super) fn figures() -> &'static [Measurement] {
    static FIGURES: LazyLock<Tuning> = LazyLock::new(|| {
        Tuning::from_toml(include_str!("lab.toml")).expect("a test reads the lab's figures")
    });
    &FIGURES.measurements
}

/// What figures of aggregators that are processes say of those inside the kernel.
pub(super) fn inside_the_kernel(rows: &[Measurement]) -> Vec<Measurement> {
    let inside = |row: &Measurement| {
        let is_faster = row.method == Method::Tree && carried_bytes(row) <= KERNEL_BYTES_MAX;
        let share = if is_faster { KERNEL_SHARE } else { 1.0 };
        Measurement { time_us: row.time_us * share, ..*row }
    };
    rows.iter().map(inside).collect()
}

/// The length of the vector between hosts: where each has a part of its own, or must know those of all before it, the
/// vector is that of all.
fn carried_bytes(row: &Measurement) -> u64 {
    use CollectiveKind::{Allgather, Exscan, Scan};
    match row.collective {
        Allgather | Scan | Exscan => row.len_bytes * u64::from(row.hosts),
        _ => row.len_bytes,
    }
}

#[cfg(test)]
mod tests {
    use super::super::table::Table;
    use super::*;

    #[test]
    fn both_methods_are_there_and_the_tree_for_short_vectors_of_many_hosts() {
        for method in [Method::Tree, Method::Direct] {
            assert!(figures().iter().any(|row| row.method == method));
        }
        for (hosts, len_bytes, method) in [
            (3, 8, Method::Direct),
            (8, 8, Method::Tree),
            (16, 8, Method::Tree),
            (8, 1 << 24, Method::Direct),
        ] {
            let table = Table::fastest(figures(), hosts, hosts);
            let best = table.rule(CollectiveKind::Allreduce, len_bytes).unwrap();
            assert_eq!(best.method, method, "{hosts} hosts, {len_bytes} B");
        }
    }

    #[test]
    fn aggregators_inside_the_kernel_are_faster_than_one_host_in_the_middle() {
        use CollectiveKind::{Allgather, Allreduce, Barrier, Broadcast, Reduce, ReduceScatter};
        let method = |kind, hosts, len_bytes| {
            let rows = inside_the_kernel(figures());
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
}
