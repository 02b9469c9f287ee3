//! Which nodes are in doubt at this process.
//!
//! A program waits for one communicator after the other, and a node that says nothing is missed only by who waits for
//! it. So whoever gives a node up warns all communicators of the process at once; and when a tree is lost that others
//! have found lost, all of them ask its node, which may be the silent one: each asks the node, if it is its own, and
//! is not as patient as usual.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::Patience;

use crate::watch;

/// How long a doubt counts.
const RECENT: Duration = Duration::from_secs(5);

/// A node that may not be there any more.
struct Doubt {
    address: String,
    since: Instant,
    /// How long its answer is waited for.
    patience: Patience,
}

static DOUBTS: Mutex<Vec<Doubt>> = Mutex::new(Vec::new());

/// A node did not answer.
pub(super) fn warn(address: &str) {
    doubt(address, Patience::WARNED);
}

/// A tree was lost that the node is part of.
pub(super) fn suspect(address: &str) {
    if patience(address).is_none() {
        doubt(address, Patience::SUSPICIOUS);
    }
}

fn doubt(address: &str, patience: Patience) {
    let mut doubts = DOUBTS.lock().unwrap_or_else(PoisonError::into_inner);
    doubts.retain(|it| it.address != address && it.since.elapsed() < RECENT);
    doubts.push(Doubt { address: address.to_owned(), since: Instant::now(), patience });
    drop(doubts);
    watch::call_all();
}

/// How patient to be with a node that is in doubt; none if it is not.
pub(super) fn patience(address: &str) -> Option<Patience> {
    let doubts = DOUBTS.lock().unwrap_or_else(PoisonError::into_inner);
    let of_node = |it: &&Doubt| it.address == address && it.since.elapsed() < RECENT;
    doubts.iter().find(of_node).map(|it| it.patience)
}
