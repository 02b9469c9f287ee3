//! Why processes did not meet, or lost each other again.

use std::io;

/// Why a rendezvous failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The caller named a rank that can't be.
    #[error("rank {rank} of {size}: ranks are counted from 0")]
    NoSuchRank {
        /// The rank.
        rank: u32,
        /// Ranks in the job.
        size: u32,
    },
    /// The address is none, or none of this machine's.
    #[error("rank 0 can't listen at {address}: {problem}")]
    Listen {
        /// The address.
        address: String,
        /// What the system says.
        problem: io::Error,
    },
    /// Rank 0 was not there in time.
    #[error(
        "rank 0 was not found at {address} within {waited_s} s ({problem}): it is missing, or was started \
         with another address"
    )]
    NoHub {
        /// The address.
        address: String,
        /// How long this rank tried.
        waited_s: f64,
        /// What the last attempt met.
        problem: io::Error,
    },
    /// Ranks were not there, or did not answer, in time.
    #[error("{} did not {what} within {waited_s} s", names(.ranks))]
    Missing {
        /// Which.
        ranks: Vec<u32>,
        /// What they were waited for.
        what: &'static str,
        /// How long.
        waited_s: f64,
    },
    /// A rank's connection ended.
    #[error("rank {rank} left the rendezvous ({problem})")]
    Left {
        /// The rank.
        rank: u32,
        /// What the system says.
        problem: io::Error,
    },
    /// Ranks were started with arguments that do not fit together.
    #[error("{0}")]
    Mismatch(String),
    /// What rank 0 says of it.
    #[error("{0}")]
    Told(String),
}

/// "rank 3", or "ranks 1, 3 and 4".
fn names(ranks: &[u32]) -> String {
    let texts: Vec<String> = ranks.iter().map(u32::to_string).collect();
    match texts.split_last() {
        Some((last, [])) => format!("rank {last}"),
        Some((last, others)) => format!("ranks {} and {last}", others.join(", ")),
        None => "no rank".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_ranks_are_named() {
        assert_eq!(names(&[3]), "rank 3");
        assert_eq!(names(&[1, 3, 4]), "ranks 1, 3 and 4");
    }
}
