//! Which nodes members of this process have given up of late, because they did not answer.
//!
//! A program waits for one communicator after the other. So whoever gives a node up warns all communicators of the
//! process at once: each asks the node, if it is its own, and is not as patient again.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::watch;

/// How long that counts.
const RECENT: Duration = Duration::from_secs(5);

/// Addresses of nodes, and when they were given up.
static NODES: Mutex<Vec<(String, Instant)>> = Mutex::new(Vec::new());

/// A node did not answer, of which nobody was warned.
pub(super) fn warn(address: &str) {
    let mut nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    nodes.retain(|(known, at)| known != address && at.elapsed() < RECENT);
    nodes.push((address.to_owned(), Instant::now()));
    drop(nodes);
    watch::call_all();
}

/// Whether a node was given up of late.
pub(super) fn is_known(address: &str) -> bool {
    let nodes = NODES.lock().unwrap_or_else(PoisonError::into_inner);
    nodes.iter().any(|(known, at)| known == address && at.elapsed() < RECENT)
}
