//! Reports of late ranks.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use super::threads::{Watchdog, with_group_of};
use crate::{Action, Attachment, Late, Operation};

/// Ranks of a group of three in a barrier to which rank 2 comes when it has been told to be late, and what each
/// rank tells.
fn told_of_late_barrier(after: Duration, comes: impl Fn(&AtomicU32) + Sync) -> Vec<Late> {
    let tellings = Arc::new(AtomicU32::new(0));
    let (send, received) = mpsc::channel();
    let settle = |attachment: Attachment, _| {
        let mut group = attachment.settle(3).unwrap();
        let (send, tellings) = (send.clone(), Arc::clone(&tellings));
        group.tell_late(after, move |late| {
            send.send(late).unwrap();
            tellings.fetch_add(1, Ordering::Relaxed);
        });
        group
    };
    with_group_of(3, settle, |group| {
        if group.local_rank() == 2 {
            comes(&tellings);
        }
        let barrier = Operation {
            action: Action::Barrier,
            source: std::ptr::null(),
            target: std::ptr::null_mut(),
            len_bytes: 0,
        };
        // SAFETY: a barrier has no vectors.
        unsafe { group.run(&barrier) }.unwrap();
    });
    drop(send);
    received.try_iter().collect()
}

#[test]
fn a_late_rank_is_told_once_by_those_who_wait() {
    let _watchdog = Watchdog::new("a_late_rank_is_told_once_by_those_who_wait");
    let after = Duration::from_millis(50);
    let told = told_of_late_barrier(after, |tellings| {
        while tellings.load(Ordering::Relaxed) == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
        // Time for any other rank that would tell.
        std::thread::sleep(4 * after);
    });
    let [Late { local_rank: 2, waited }] = told[..] else { panic!("{told:?}") };
    assert!(waited >= after, "{waited:?}");
}

#[test]
fn a_rank_that_comes_in_time_is_not_late() {
    let _watchdog = Watchdog::new("a_rank_that_comes_in_time_is_not_late");
    let told = told_of_late_barrier(Duration::from_secs(3600), |_| {
        std::thread::sleep(Duration::from_millis(100));
    });
    assert!(told.is_empty(), "{told:?}");
}
