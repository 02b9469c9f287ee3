//! Groups whose ranks are threads of the test.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::Duration;

use super::kernels::KERNELS;
use super::script::{Manner, play};
use crate::peer_memory::granting;
use crate::{
    Action, AttachError, Attachment, Combine, HostGroup, Lost, LostCause, Mailbox, Operation,
    Policy, SettleError, Unreachable, UnreachableCause,
};

/// Ends the test program if the test hangs.
pub(super) struct Watchdog(std::sync::Arc<AtomicBool>);

impl Watchdog {
    pub(super) fn new(test: &'static str) -> Self {
        let over = std::sync::Arc::new(AtomicBool::new(false));
        let seen = over.clone();
        std::thread::spawn(move || {
            for _ in 0..3000 {
                std::thread::sleep(Duration::from_millis(100));
                if seen.load(Ordering::Relaxed) {
                    return;
                }
            }
            eprintln!("watchdog: {test} hangs");
            std::process::abort();
        });
        Self(over)
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Runs `body` on every rank of a group of threads that believe in `processes` processes.
fn with_group<T: Send>(
    ranks: u32,
    processes: u32,
    body: impl Fn(&mut HostGroup) -> T + Sync,
) -> Vec<T> {
    with_group_of(ranks, |attachment, _| attachment.settle(processes).unwrap(), body)
}

/// The same, with ranks that settle as they like.
pub(super) fn with_group_of<T: Send>(
    ranks: u32,
    settle: impl Fn(Attachment, u32) -> HostGroup + Sync,
    body: impl Fn(&mut HostGroup) -> T + Sync,
) -> Vec<T> {
    let (offer, handle) = HostGroup::offer(ranks).unwrap();
    let handle = std::sync::Mutex::new(Some(handle));
    let everyone = Barrier::new(ranks as usize);
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..ranks)
            .map(|rank| {
                let (everyone, handle, body, settle) = (&everyone, &handle, &body, &settle);
                scope.spawn(move || {
                    let attachment = HostGroup::attach(&offer, rank, ranks).unwrap();
                    everyone.wait();
                    drop(handle.lock().unwrap().take());
                    body(&mut settle(attachment, rank))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

#[test]
fn random_sequences_of_short_operations() {
    let _watchdog = Watchdog::new("random_sequences_of_short_operations");
    for ranks in 1..=9 {
        for seed in 0..2 {
            let manner =
                Manner { seed, operations: 1500, len_bytes_max: 4153, delays: seed % 2 == 1 };
            for outcome in with_group(ranks, ranks, |group| play(group, manner)) {
                assert_eq!(outcome, Ok(()));
            }
        }
    }
}

#[test]
fn random_sequences_of_all_lengths() {
    let _watchdog = Watchdog::new("random_sequences_of_all_lengths");
    for ranks in 1..=9 {
        let manner = Manner {
            seed: 100 + u64::from(ranks),
            operations: 60,
            len_bytes_max: usize::MAX,
            delays: ranks % 2 == 0,
        };
        for outcome in with_group(ranks, ranks, |group| play(group, manner)) {
            assert_eq!(outcome, Ok(()));
        }
    }
}

/// Threads of one process reach each other's memory, so long vectors go directly; where a single
/// rank does not, all ranks stage them, from the first long operation on.
#[test]
fn long_vectors_go_directly_or_not_at_all_ranks_alike() {
    let _watchdog = Watchdog::new("long_vectors_go_directly_or_not_at_all_ranks_alike");
    for (ranks, refuser) in [(2, None), (2, Some(1)), (3, Some(0)), (3, None), (5, Some(4))] {
        let settle = |attachment: Attachment, rank| {
            let refuses = refuser == Some(rank);
            let attachment = if refuses { attachment.without_direct_access() } else { attachment };
            attachment.settle_as(Policy::Spin)
        };
        let manner = Manner { seed: 31, operations: 80, len_bytes_max: usize::MAX, delays: false };
        let outcomes = with_group_of(ranks, settle, |group| {
            play(group, manner).unwrap();
            (group.is_direct(), group.direct_access())
        });
        let peer = u32::from(refuser == Some(0));
        let told = refuser.map_or(Ok(()), |local_rank| {
            Err(Unreachable { local_rank, peer, cause: UnreachableCause::TurnedOff })
        });
        assert!(outcomes.iter().all(|outcome| *outcome == (refuser.is_none(), told)));
    }
}

/// What the kernel refuses one rank from some call on, which may be in the middle of its share, is staged by all, in
/// that operation and all later ones.
#[test]
fn access_that_is_refused_later_is_made_up_for() {
    let _watchdog = Watchdog::new("access_that_is_refused_later_is_made_up_for");
    let settle = |attachment: Attachment, _| attachment.settle_as(Policy::Spin);
    for (ranks, granted) in [(2, [1, 9]), (2, [2, 3]), (3, [5, 0]), (3, [8, 7]), (5, [11, 12])] {
        let outcomes = with_group_of(ranks, settle, |group| {
            let was_direct = goes_directly(group);
            let rank = group.local_rank() as usize;
            granting::only(granted.get(rank).copied().unwrap_or(u64::MAX));
            let manner = Manner {
                seed: granted[0],
                operations: 40,
                len_bytes_max: usize::MAX,
                delays: false,
            };
            play(group, manner).unwrap();
            granting::only(if rank == 0 { 0 } else { u64::MAX });
            (was_direct, goes_directly(group))
        });
        assert!(outcomes.iter().all(|outcome| *outcome == (true, false)), "{outcomes:?}");
    }
}

/// Whether a long broadcast goes directly.
fn goes_directly(group: &mut HostGroup) -> bool {
    let mut buffer = vec![0_u8; 1 << 17];
    let place = buffer.as_mut_ptr();
    let action = Action::Broadcast { from: 1 };
    let operation = Operation { action, source: place, target: place, len_bytes: buffer.len() };
    // SAFETY: the buffer is valid for its length, and outlives the call.
    unsafe { group.run(&operation) }.unwrap();
    group.is_direct()
}

#[test]
fn either_policy_serves_two_ranks() {
    let _watchdog = Watchdog::new("either_policy_serves_two_ranks");
    for processes in [2, 1000] {
        let manner = Manner { seed: 7, operations: 2000, len_bytes_max: 4153, delays: true };
        let outcomes = with_group(2, processes, |group| {
            if processes == 1000 {
                assert_eq!(group.policy(), Policy::Sleep);
            }
            play(group, manner)
        });
        assert!(outcomes.iter().all(Result::is_ok));
    }
}

#[test]
fn a_reported_failure_reaches_every_rank_that_waits() {
    let _watchdog = Watchdog::new("a_reported_failure_reaches_every_rank_that_waits");
    for ranks in [2, 3, 5] {
        let outcomes = with_group(ranks, ranks, |group| {
            if group.local_rank() == 1 {
                std::thread::sleep(Duration::from_millis(30));
                group.fail(42);
            }
            barrier(group)
        });
        let lost = Lost::new(1, LostCause::Reported(42));
        assert!(outcomes.iter().all(|outcome| *outcome == Err(lost)), "{outcomes:?}");
    }
}

#[test]
fn a_rank_that_left_is_noticed_and_the_loss_is_final() {
    let _watchdog = Watchdog::new("a_rank_that_left_is_noticed_and_the_loss_is_final");
    let outcomes = with_group(3, 3, |group| {
        if group.local_rank() == 2 {
            return Err(Lost::new(2, LostCause::Left));
        }
        let first = barrier(group);
        assert_eq!(barrier(group), first);
        assert_eq!(group.poll().map(|_| ()), first);
        first
    });
    let lost = Lost::new(2, LostCause::Left);
    assert!(outcomes.iter().all(|outcome| *outcome == Err(lost)), "{outcomes:?}");
}

#[test]
fn a_rank_that_did_its_part_may_leave() {
    let _watchdog = Watchdog::new("a_rank_that_did_its_part_may_leave");
    with_group(3, 3, |group| {
        let rank = group.local_rank();
        let mut word = if rank == 0 { 77_u64 } else { 0 };
        let place = (&raw mut word).cast::<u8>();
        let action = Action::Broadcast { from: 0 };
        if rank != 0 {
            std::thread::sleep(Duration::from_millis(60));
        }
        let operation = Operation { action, source: place, target: place, len_bytes: 8 };
        // SAFETY: `word` outlives the call.
        assert_eq!(unsafe { group.run(&operation) }, Ok(()));
        assert_eq!(word, 77);
    });
}

#[test]
fn a_transfer_holds_up_nobody_else() {
    let _watchdog = Watchdog::new("a_transfer_holds_up_nobody_else");
    let gone_through = AtomicBool::new(false);
    with_group(3, 3, |group| {
        let rank = group.local_rank();
        let mut word = u64::from(rank);
        let place = (&raw mut word).cast::<u8>();
        if rank == 0 {
            // Sends only after rank 2, which has no part in it, has come through.
            while !gone_through.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        let action = Action::Transfer { from: 0, to: 1 };
        let operation = Operation { action, source: place, target: place, len_bytes: 8 };
        // SAFETY: `word` outlives the call.
        assert_eq!(unsafe { group.run(&operation) }, Ok(()));
        if rank == 2 {
            gone_through.store(true, Ordering::Relaxed);
        }
        assert_eq!(word, [0, 0, 2][rank as usize]);
    });
}

thread_local! {
    static IS_SLOW: std::cell::Cell<bool> = const { std::cell::Cell::new(false) };
}

/// The first test kernel, held up on threads that are slow, before it reads anything.
struct HeldUp;

impl crate::Combine for HeldUp {
    fn element_bytes(&self) -> usize {
        KERNELS[0].element_bytes()
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        if IS_SLOW.get() {
            std::thread::sleep(Duration::from_millis(20));
        }
        KERNELS[0].combine_into(target, left, right);
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        KERNELS[0].fold(target, source);
    }
}

/// Ranks that have nothing to wait for run ahead of one that still reads their slots: the counters
/// must hold them back. The reduction is long, so that its shares are read by all.
#[test]
fn slots_are_kept_for_a_slow_reader_while_others_run_ahead() {
    let _watchdog = Watchdog::new("slots_are_kept_for_a_slow_reader_while_others_run_ahead");
    with_group(3, 3, |group| {
        let rank = group.local_rank();
        IS_SLOW.set(rank == 2);
        let contribution = vec![1_u8 + rank as u8; 90_000];
        let mut result = vec![0_u8; 90_000];
        let mut news = vec![if rank == 1 { 0xee_u8 } else { 0 }; 1 << 20];
        let place = news.as_mut_ptr();
        let operations = [
            Operation {
                action: Action::Reduce { to: 0, kernel: &HeldUp },
                source: contribution.as_ptr(),
                target: result.as_mut_ptr(),
                len_bytes: contribution.len(),
            },
            Operation {
                action: Action::Broadcast { from: 1 },
                source: place,
                target: place,
                len_bytes: news.len(),
            },
        ];
        for operation in operations {
            // SAFETY: the buffers outlive the call, and are apart.
            assert_eq!(unsafe { group.run(&operation) }, Ok(()));
        }
        assert!(news.iter().all(|&byte| byte == 0xee));
        let sum = if rank == 0 { 6 } else { 0 };
        assert!(result.iter().all(|&byte| byte == sum), "a slot was overwritten too early");
    });
}

#[test]
fn an_operation_in_progress_is_pending_until_all_came() {
    let _watchdog = Watchdog::new("an_operation_in_progress_is_pending_until_all_came");
    let polled = AtomicBool::new(false);
    with_group(2, 2, |group| {
        let mut word = 1_i32;
        let place = (&raw mut word).cast::<u8>();
        let action = Action::Allreduce(KERNELS[0]);
        let operation = Operation { action, source: place, target: place, len_bytes: 4 };
        if group.local_rank() == 1 {
            while !polled.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        }
        // SAFETY: `word` outlives the operation, which is polled to its end below.
        unsafe { group.start(operation) }.unwrap();
        if group.local_rank() == 0 {
            assert_eq!(group.poll(), Ok(Poll::Pending));
            polled.store(true, Ordering::Relaxed);
        }
        group.complete().unwrap();
        // SAFETY: reads what the operation wrote through `place`.
        assert_eq!(unsafe { (&raw const word).read_volatile() }, 2);
    });
}

#[test]
fn attaching_checks_place_and_offer() {
    let (offer, handle) = HostGroup::offer(2).unwrap();
    let first = HostGroup::attach(&offer, 0, 2).unwrap();
    assert_eq!(
        HostGroup::attach(&offer, 0, 2).err(),
        Some(AttachError::RankTaken { local_rank: 0 })
    );
    assert!(matches!(HostGroup::attach(&offer, 2, 2), Err(AttachError::Ranks { .. })));
    assert!(matches!(HostGroup::attach(&offer, 0, 3), Err(AttachError::Ranks { .. })));
    assert_eq!(first.all_attached(), Err(SettleError::NotAttached { local_rank: 1 }));
    drop(handle);
    assert!(HostGroup::attach(&offer, 1, 2).is_err(), "the leader's descriptor is closed");
    assert!(HostGroup::offer(0).is_err());
    assert!(HostGroup::offer(crate::RANKS_MAX + 1).is_err());
}

#[test]
fn offers_survive_the_journey_and_foreign_bytes_do_not_pass() {
    use crate::Offer;
    let (offer, _keeper) = HostGroup::offer(5).unwrap();
    let bytes = offer.to_bytes();
    assert_eq!(Offer::from_bytes(&bytes), Ok(offer));
    for (at, value) in [(0, 9), (12, 0), (16, 1)] {
        let mut bytes = bytes;
        bytes[at] = value;
        assert!(Offer::from_bytes(&bytes).is_err(), "byte {at}");
    }
}

#[test]
fn a_delivered_segment_works_and_others_are_refused() {
    let _watchdog = Watchdog::new("a_delivered_segment_works_and_others_are_refused");
    let (offer, handle) = HostGroup::offer(2).unwrap();
    let (_, stranger) = HostGroup::offer(2).unwrap();
    let mailbox = Mailbox::new().unwrap();
    let attach = || HostGroup::attach_delivered(&offer, &mailbox, 1, 2);
    assert_eq!(attach().err(), Some(AttachError::NotDelivered));
    stranger.deliver(mailbox.name()).unwrap();
    assert_eq!(attach().err(), Some(AttachError::NotDelivered));
    stranger.deliver(mailbox.name()).unwrap();
    handle.deliver(mailbox.name()).unwrap();
    let other = attach().unwrap();
    let own = HostGroup::attach_with_handle(&offer, &handle, 0, 2).unwrap();
    drop(handle);
    std::thread::scope(|scope| {
        for attachment in [own, other] {
            scope.spawn(move || assert_eq!(barrier(&mut attachment.settle(2).unwrap()), Ok(())));
        }
    });
}

fn barrier(group: &mut HostGroup) -> Result<(), Lost> {
    let operation = Operation {
        action: Action::Barrier,
        source: std::ptr::null(),
        target: std::ptr::null_mut(),
        len_bytes: 0,
    };
    // SAFETY: a barrier has no buffers.
    unsafe { group.run(&operation) }
}

/// Says when it has begun, and ends some time after the other rank has given up.
struct SlowSum;

static SLOW_SUM_BEGUN: AtomicBool = AtomicBool::new(false);
static HAS_GIVEN_UP: AtomicBool = AtomicBool::new(false);

impl Combine for SlowSum {
    fn element_bytes(&self) -> usize {
        1
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        SLOW_SUM_BEGUN.store(true, Ordering::Relaxed);
        while !HAS_GIVEN_UP.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(1));
        }
        std::thread::sleep(Duration::from_millis(300));
        for ((target, left), right) in target.iter_mut().zip(left).zip(right) {
            *target = left.wrapping_add(*right);
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        target.iter_mut().zip(source).for_each(|(target, source)| *target += source);
    }
}

struct QuickSum;

impl Combine for QuickSum {
    fn element_bytes(&self) -> usize {
        1
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        for ((target, left), right) in target.iter_mut().zip(left).zip(right) {
            *target = left.wrapping_add(*right);
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        target.iter_mut().zip(source).for_each(|(target, source)| *target += source);
    }
}

/// A rank that gives up has its buffers back only when nobody writes to them any more.
#[test]
fn a_rank_that_gives_up_a_direct_operation_outlasts_those_that_write_to_it() {
    const LEN_BYTES: usize = 64 << 10;
    let _watchdog =
        Watchdog::new("a_rank_that_gives_up_a_direct_operation_outlasts_those_that_write_to_it");
    let settle = |attachment: Attachment, rank| {
        let mut group = attachment.settle(2).unwrap();
        if rank == 1 {
            group.set_idle(|| {
                let gives_up = SLOW_SUM_BEGUN.load(Ordering::Relaxed);
                HAS_GIVEN_UP.store(gives_up, Ordering::Relaxed);
                if gives_up { Err(9) } else { Ok(()) }
            });
        }
        group
    };
    let outcomes = with_group_of(2, settle, |group| {
        let kernel: &dyn Combine = if group.local_rank() == 0 { &SlowSum } else { &QuickSum };
        let source = vec![1; LEN_BYTES];
        let mut target = vec![0; LEN_BYTES];
        let operation = Operation {
            action: Action::Allreduce(kernel),
            source: source.as_ptr(),
            target: target.as_mut_ptr(),
            len_bytes: LEN_BYTES,
        };
        // SAFETY: both vectors have that length and outlive the operation.
        let outcome = unsafe { group.run(&operation) };
        let when_over = target.clone();
        std::thread::sleep(Duration::from_millis(600));
        assert!(target == when_over, "the target changed after the operation was over");
        outcome
    });
    let lost = Lost::new(1, LostCause::Reported(9));
    assert_eq!(outcomes[1], Err(lost));
}
