//! Sizes, durations and ratios as people read them.

use tributary_report::Bounds;

/// A size class, by its shortest contribution in bytes: `0 B`, `8-15 B`, `4-8 KiB`.
pub(super) fn size(from_bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let unit = from_bytes.checked_ilog2().map_or(0, |power| power as usize / 10);
    let unit = unit.min(UNITS.len() - 1);
    let from = from_bytes >> (10 * unit);
    match (unit, from) {
        (0, 0 | 1) => format!("{from} B"),
        (0, from) => format!("{from}-{} B", 2 * from - 1),
        (_, from) => format!("{from}-{} {}", 2 * from, UNITS[unit]),
    }
}

/// A number with three digits, or all before the point.
pub(super) fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        value if value < 1.0 => 3,
        value if value < 10.0 => 2,
        value if value < 100.0 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

/// Nanoseconds in microseconds.
pub(super) fn us(ns: f64) -> String {
    digits(ns / 1e3)
}

/// Nanoseconds in seconds, to the microsecond.
pub(super) fn seconds(ns: f64) -> String {
    format!("{:.6}", ns / 1e9)
}

/// The middle of a quantile's bucket in microseconds; a dash if there is none.
pub(super) fn middle_us(bounds: Option<Bounds>) -> String {
    bounds.map_or_else(|| "-".to_owned(), |bounds| us(bounds.middle_ns()))
}

/// A share of 1.
pub(super) fn percent(share: f64) -> String {
    format!("{:.0}%", 100.0 * share)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn size_classes_name_their_bounds() {
        let named = [
            (0, "0 B"),
            (1, "1 B"),
            (2, "2-3 B"),
            (512, "512-1023 B"),
            (1024, "1-2 KiB"),
            (512 << 10, "512-1024 KiB"),
            (1 << 20, "1-2 MiB"),
            (1 << 40, "1-2 TiB"),
        ];
        for (from_bytes, name) in named {
            assert_eq!(size(from_bytes), name);
        }
    }

    #[test]
    fn durations_have_three_digits() {
        assert_eq!(us(256.0), "0.256");
        assert_eq!(us(1_280.0), "1.28");
        assert_eq!(us(81_920.0), "81.9");
        assert_eq!(us(1_234_567.0), "1235");
        assert_eq!(middle_us(Some(Bounds { from_ns: 640, to_ns: 768 })), "0.704");
        assert_eq!(middle_us(None), "-");
        assert_eq!(percent(0.346), "35%");
        assert_eq!(seconds(1_500_000.0), "0.001500");
    }
}
