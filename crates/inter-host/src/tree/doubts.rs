//! Which nodes are in doubt at this process.
//!
//! A program waits for one communicator after the other, and a node that says nothing is missed only by who waits for
//! it. So whoever gives a node up warns all communicators of the process that have it. And whoever loses a tree makes
//! all of them ask their nodes, and not be as patient as usual: another host may have lost it to a node that is not
//! this process's own there, but is in another tree.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::Patience;

use crate::watch;

/// How long a doubt counts.
const RECENT: Duration = Duration::from_secs(5);
/// Trees that are lost within this are lost together, and cause one doubt.
const TOGETHER: Duration = Duration::from_millis(100);

/// A node did not answer.
pub(super) fn warn(address: &str) {
    doubts().warn(address, Instant::now());
    watch::call_all();
}

/// A tree was lost. Its node may be silent, and stand in trees that nobody has missed it in.
pub(crate) fn suspect_all() {
    let is_new = doubts().suspect_all(Instant::now());
    if is_new {
        watch::call_all();
    }
}

/// How patient to be with a node that is in doubt; none if it is not.
pub(super) fn patience(address: &str) -> Option<Patience> {
    doubts().patience(address, Instant::now())
}

fn doubts() -> MutexGuard<'static, Doubts> {
    static DOUBTS: Mutex<Doubts> = Mutex::new(Doubts::NONE);
    DOUBTS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Doubts {
    /// When a tree was last lost.
    lost_at: Option<Instant>,
    /// Nodes that did not answer, by address, and since when.
    warned: Vec<(String, Instant)>,
}

impl Doubts {
    const NONE: Self = Self { lost_at: None, warned: Vec::new() };

    fn warn(&mut self, address: &str, now: Instant) {
        self.warned.retain(|(known, since)| known != address && now - *since < RECENT);
        self.warned.push((address.to_owned(), now));
    }

    /// Whether nobody knows of it yet.
    fn suspect_all(&mut self, now: Instant) -> bool {
        let is_new = self.lost_at.is_none_or(|lost_at| now - lost_at >= TOGETHER);
        if is_new {
            self.lost_at = Some(now);
        }
        is_new
    }

    fn patience(&self, address: &str, now: Instant) -> Option<Patience> {
        let is_recent = |since: Instant| now - since < RECENT;
        if self.warned.iter().any(|(known, since)| known == address && is_recent(*since)) {
            return Some(Patience::WARNED);
        }
        self.lost_at.filter(|lost_at| is_recent(*lost_at)).map(|_| Patience::SUSPICIOUS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_tree_makes_every_node_a_suspect_and_a_warning_one_of_them_more() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let mut doubts = Doubts::NONE;
        assert_eq!(doubts.patience("a", at(0)), None);
        assert!(doubts.suspect_all(at(0)));
        doubts.warn("a", at(10));
        let both = |doubts: &Doubts, ms| ["a", "b"].map(|it| doubts.patience(it, at(ms)));
        assert_eq!(both(&doubts, 20), [Some(Patience::WARNED), Some(Patience::SUSPICIOUS)]);
        assert_eq!(both(&doubts, 5005), [Some(Patience::WARNED), None]);
        assert_eq!(both(&doubts, 5010), [None, None]);
    }

    /// Each call wakes all communicators: not once for each of a thousand that lose their trees together.
    #[test]
    fn trees_that_are_lost_together_are_one_loss_and_later_ones_are_others() {
        let start = Instant::now();
        let mut doubts = Doubts::NONE;
        let mut is_new = |ms| doubts.suspect_all(start + Duration::from_millis(ms));
        assert_eq!([0, 99, 100, 150, 200].map(&mut is_new), [true, false, true, false, true]);
        let later = start + Duration::from_millis(5100);
        assert_eq!(doubts.patience("a", later), Some(Patience::SUSPICIOUS));
    }
}
