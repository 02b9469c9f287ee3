//! `tributary swarm`.

use std::ops::Range;

use clap::Args;

const EXAMPLES: &str = "\
Examples:
  tributary swarm --seeds 0..100000
  tributary swarm --seeds 4711..4712  one seed, with its story if it fails
  tributary swarm --seeds 0..10000 --json";

/// Run random systems under random faults, one per seed, and check that nothing goes wrong
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct SwarmFlags {
    /// Seeds from A to before B
    #[arg(long, value_name = "A..B", value_parser = seeds)]
    pub(crate) seeds: Range<u64>,

    /// Stop after so many failing seeds
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) failures: u64,

    /// Threads; as many as there are cores by default
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub(crate) threads: Option<u16>,

    /// Write one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

/// Reads `A..B`.
fn seeds(text: &str) -> Result<Range<u64>, String> {
    let allowed = || "a range such as 0..1000 is allowed".to_owned();
    let (first, end) = text.split_once("..").ok_or_else(allowed)?;
    let range = first.parse().map_err(|_| allowed())?..end.parse().map_err(|_| allowed())?;
    if range.is_empty() {
        return Err("the second seed must be larger than the first".to_owned());
    }
    Ok(range)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_are_a_range_that_is_not_empty() {
        assert_eq!(seeds("3..7"), Ok(3..7));
        for bad in ["", "3", "..7", "3..", "7..3", "3..3", "a..b", "-1..3"] {
            assert!(seeds(bad).is_err(), "{bad}");
        }
    }
}
