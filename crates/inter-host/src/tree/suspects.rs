//! Which aggregators this process suspects to be gone.
//!
//! A program waits for one communicator after the other, and only a communicator that waits misses an aggregator that
//! says nothing. So a communicator that gives an aggregator up warns all communicators of the process that have it. And
//! one that loses a tree makes all of them ask their aggregators, and be less patient than usual: another host may have
//! lost the tree to an aggregator that is not this process's own there, but is in another tree.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tributary_protocol::endpoint::Patience;

use crate::watch;

/// How long a suspicion counts.
const RECENT: Duration = Duration::from_secs(5);
/// Trees that are lost within this are lost together, and cause one suspicion.
const TOGETHER: Duration = Duration::from_millis(100);

/// An aggregator did not answer.
pub(super) fn warn(address: &str) {
    suspects().warn(address, Instant::now());
    watch::call_all();
}

/// A tree was lost. Its aggregator may be silent, and stand in trees that nobody has missed it in.
pub(crate) fn suspect_all() {
    let is_new = suspects().suspect_all(Instant::now());
    if is_new {
        watch::call_all();
    }
}

/// How patient to be with a suspect aggregator; none if it is not suspect.
pub(super) fn patience(address: &str) -> Option<Patience> {
    suspects().patience(address, Instant::now())
}

fn suspects() -> MutexGuard<'static, SuspectNodes> {
    static SUSPECTS: Mutex<SuspectNodes> = Mutex::new(SuspectNodes::NONE);
    SUSPECTS.lock().unwrap_or_else(PoisonError::into_inner)
}

struct SuspectNodes {
    /// When a tree was last lost.
    lost_at: Option<Instant>,
    /// Aggregators that did not answer, by address, and since when.
    warned: Vec<(String, Instant)>,
}

impl SuspectNodes {
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
        let mut suspects = SuspectNodes::NONE;
        assert_eq!(suspects.patience("a", at(0)), None);
        assert!(suspects.suspect_all(at(0)));
        suspects.warn("a", at(10));
        let both = |suspects: &SuspectNodes, ms| ["a", "b"].map(|it| suspects.patience(it, at(ms)));
        assert_eq!(both(&suspects, 20), [Some(Patience::WARNED), Some(Patience::SUSPICIOUS)]);
        assert_eq!(both(&suspects, 5005), [Some(Patience::WARNED), None]);
        assert_eq!(both(&suspects, 5010), [None, None]);
    }

    /// Each call wakes all communicators: not once for each of a thousand that lose their trees together.
    #[test]
    fn trees_that_are_lost_together_are_one_loss_and_later_ones_are_others() {
        let start = Instant::now();
        let mut suspects = SuspectNodes::NONE;
        let mut is_new = |ms| suspects.suspect_all(start + Duration::from_millis(ms));
        assert_eq!([0, 99, 100, 150, 200].map(&mut is_new), [true, false, true, false, true]);
        let later = start + Duration::from_millis(5100);
        assert_eq!(suspects.patience("a", later), Some(Patience::SUSPICIOUS));
    }
}
