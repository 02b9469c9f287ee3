//! Up to what length collectives are taken of which the underlying MPI does longer ones faster.

use serde::{Deserialize, Serialize};

/// What is said of communicators inside a host, and of those between hosts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffloadMax {
    /// Inside a host.
    pub inside: LongestBytes,
    /// Between hosts.
    pub between: LongestBytes,
}

/// The longest contributions that are taken, in bytes; none where nobody said it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LongestBytes {
    /// Of the vector of a reduce-scatter.
    pub reduce_scatter: Option<u64>,
    /// Of each rank to an allgather.
    pub allgather: Option<u64>,
    /// Of the vector of a scan.
    pub scan: Option<u64>,
}

impl OffloadMax {
    /// `auto`, or a list such as `allgather:8192,between_scan:always`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let mut said = Self::default();
        if text == "auto" {
            return Some(said);
        }
        for part in text.split(',') {
            let (name, bytes) = part.split_once(':')?;
            let bytes = if bytes == "always" { u64::MAX } else { bytes.parse().ok()? };
            let of_where = match name.strip_prefix("between_") {
                None => said.inside.of_collective(name),
                Some(name) => said.between.of_collective(name),
            };
            if of_where?.replace(bytes).is_some() {
                return None;
            }
        }
        Some(said)
    }
}

impl LongestBytes {
    fn of_collective(&mut self, name: &str) -> Option<&mut Option<u64>> {
        match name {
            "reduce_scatter" => Some(&mut self.reduce_scatter),
            "allgather" => Some(&mut self.allgather),
            "scan" => Some(&mut self.scan),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_names_collectives_inside_a_host_and_between_hosts() {
        assert_eq!(OffloadMax::parse("auto"), Some(OffloadMax::default()));
        let said = OffloadMax::parse("allgather:8192,between_scan:always,scan:0").unwrap();
        let inside =
            LongestBytes { allgather: Some(8192), scan: Some(0), ..LongestBytes::default() };
        let between = LongestBytes { scan: Some(u64::MAX), ..LongestBytes::default() };
        assert_eq!(said, OffloadMax { inside, between });
        for wrong in ["", "scan", "scan:never", "scan:-1", "exscan:8", "scan:8,scan:8", "scan:8,"] {
            assert_eq!(OffloadMax::parse(wrong), None, "{wrong}");
        }
    }
}
