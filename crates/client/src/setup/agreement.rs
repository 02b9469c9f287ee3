//! How the ranks of a communicator come to the same outcome after each step of its set-up.

use tributary_settings::Requirement;

use crate::bootstrap::{Bootstrap, BootstrapError, allgather_texts};

/// Why a communicator is left to others, in one line that is the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// The launcher's world failed.
    #[error(transparent)]
    Bootstrap(#[from] BootstrapError),
    /// Its ranks are on several hosts, whose MPI has an RDMA network.
    #[error(
        "spans {hosts} hosts with an RDMA network, which the MPI uses better (TRIBUTARY_FABRIC=job joins them over TCP)"
    )]
    LeftToMpi {
        /// How many.
        hosts: u32,
    },
    /// Its ranks are on several hosts, and nothing may join them.
    #[error("spans {hosts} hosts, and nothing may join them (TRIBUTARY_FABRIC is off)")]
    SwitchedOff {
        /// How many.
        hosts: u32,
    },
    /// Its ranks are on several hosts, what was asked for needs a tree, and no manager is named.
    #[error("spans {hosts} hosts, and no manager is named (TRIBUTARY_MANAGER)")]
    NoManager {
        /// How many.
        hosts: u32,
    },
    /// Its ranks are on several hosts that can't reach each other.
    #[error("spans {hosts} hosts, and {problem}")]
    Unreachable {
        /// How many.
        hosts: u32,
        /// Which hosts, where, and what the system says.
        problem: String,
    },
    /// The manager refused a group, or did not answer.
    #[error("{0}")]
    NotGranted(String),
    /// The job must have what this communicator can't have.
    #[error("{knob}={}, but {problem}", requirement.name())]
    Unmet {
        /// What says so.
        knob: &'static str,
        /// What it must have.
        requirement: Requirement,
        /// Why it can't.
        problem: String,
    },
    /// A rank could not do its part of the set-up.
    #[error("rank {rank}: {problem}")]
    Rank {
        /// The first such rank.
        rank: u32,
        /// Its words.
        problem: String,
    },
}

/// Goes on only if every rank has succeeded.
pub(super) fn agree<T>(
    bootstrap: &mut dyn Bootstrap,
    outcome: Result<T, String>,
) -> Result<T, Unavailable> {
    let problem = outcome.as_ref().err().map_or("", String::as_str);
    let problems = allgather_texts(bootstrap, problem)?;
    let first = problems.iter().position(|problem| !problem.is_empty());
    match (first, outcome) {
        (None, Ok(value)) => Ok(value),
        (Some(rank), _) => {
            Err(Unavailable::Rank { rank: rank as u32, problem: problems[rank].clone() })
        }
        (None, Err(problem)) => Err(Unavailable::Rank { rank: bootstrap.rank(), problem }),
    }
}
