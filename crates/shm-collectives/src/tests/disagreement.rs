//! Goal: ranks that call different operations all get an error that names two of them, and none waits for ever or goes on
//! with another's data. Method: one rank calls each operation of a list, the others each other one; then all go on alike.

use super::threads::{Watchdog, with_group_of};
use crate::{Action, Attachment, Blocks, Combine, HostGroup, Lost, LostCause, Operation, Policy};

const LONG_BYTES: usize = 96 * 1024;
const RANKS_MAX: usize = 4;

/// A kernel that is known to others by a number.
struct Numbered(u16);

impl Combine for Numbered {
    fn element_bytes(&self) -> usize {
        1
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        target.copy_from_slice(left);
        self.fold(target, right);
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        target.iter_mut().zip(source).for_each(|(target, source)| *target ^= source);
    }

    fn number(&self) -> u16 {
        self.0
    }
}

/// What a rank calls.
type Call = (Action, usize);

fn calls() -> Vec<Call> {
    let (bytes, floats): (&'static dyn Combine, &'static dyn Combine) =
        (&Numbered(1), &Numbered(2));
    let scan = |inclusive| Action::Scan { kernel: bytes, inclusive };
    vec![
        (Action::Allreduce(bytes), 8),
        (Action::Allreduce(bytes), 48),
        (Action::Allreduce(bytes), 4096),
        (Action::Allreduce(bytes), LONG_BYTES),
        (Action::Allreduce(floats), 8),
        (Action::Allreduce(floats), LONG_BYTES),
        (Action::Reduce { to: 0, kernel: bytes }, 8),
        (Action::Reduce { to: 1, kernel: bytes }, 8),
        (Action::Reduce { to: 1, kernel: bytes }, LONG_BYTES),
        (Action::Broadcast { from: 0 }, 8),
        (Action::Broadcast { from: 1 }, 8),
        (Action::Broadcast { from: 0 }, 4000),
        (Action::Broadcast { from: 0 }, LONG_BYTES),
        (Action::Barrier, 0),
        (Action::ReduceScatter { kernel: bytes, blocks: Blocks::Even }, 24),
        (Action::Allgather, 8),
        (Action::Allgather, 16 * 1024),
        (scan(true), 8),
        (scan(false), 8),
        (scan(true), LONG_BYTES),
    ]
}

/// Performs an operation on buffers that suit any.
fn perform(group: &mut HostGroup, (action, len_bytes): Call) -> Result<(), Lost> {
    let source = vec![1_u8; LONG_BYTES * RANKS_MAX];
    let mut target = vec![0_u8; LONG_BYTES * RANKS_MAX];
    let operation =
        Operation { action, source: source.as_ptr(), target: target.as_mut_ptr(), len_bytes };
    // SAFETY: the buffers are apart, longer than any action of this test asks for, and live until the operation is over.
    unsafe { group.run(&operation) }
}

fn outcomes(ranks: u32, policy: Policy, odd: usize, others: usize) -> Vec<Result<(), Lost>> {
    let settle = |attachment: Attachment, _| attachment.settle_as(policy);
    with_group_of(ranks, settle, |group| {
        let call = if group.local_rank() == 0 { odd } else { others };
        perform(group, calls()[call])?;
        // Ranks that only send learn of it when they next meet.
        (0..3).try_for_each(|_| perform(group, (Action::Barrier, 0)))
    })
}

/// The root of a collective over several hosts is a number that all have to have; what they do inside the host is the same.
#[test]
fn ranks_that_note_different_numbers_are_told_in_the_next_operation() {
    let _watchdog =
        Watchdog::new("ranks_that_note_different_numbers_are_told_in_the_next_operation");
    let is_from_rank_0 = |(action, _): &Call| {
        matches!(action, Action::Broadcast { from: 0 } | Action::Reduce { to: 0, .. })
    };
    let rooted: Vec<usize> = calls()
        .iter()
        .enumerate()
        .filter_map(|(at, call)| is_from_rank_0(call).then_some(at))
        .collect();
    assert_eq!(rooted.len(), 4);
    let numbers = [[5, 6], [0, 1 << 20], [7, 7]];
    for (at, numbers) in rooted.iter().flat_map(|at| numbers.map(|numbers| (*at, numbers))) {
        let settle = |attachment: Attachment, _| attachment.settle_as(Policy::Sleep);
        let outcomes = with_group_of(3, settle, |group| {
            group.note(numbers[usize::from(group.local_rank() == 2)]);
            perform(group, calls()[at])?;
            (0..3).try_for_each(|_| perform(group, (Action::Barrier, 0)))
        });
        for outcome in outcomes {
            match outcome {
                Ok(()) => assert_eq!(numbers[0], numbers[1], "{numbers:?} are told apart"),
                Err(lost) if matches!(lost.cause(), LostCause::Disagrees { .. }) => {
                    assert_ne!(numbers[0], numbers[1]);
                }
                Err(lost) => panic!("{numbers:?}: {lost:?}"),
            }
        }
    }
}

/// MPI's own broadcasts let a receiver have room for more than the root sends. From 32 KiB on a receiver tells where its
/// buffer is before it can find out, so that ends in an error.
#[test]
fn a_broadcast_that_is_shorter_at_its_root_is_carried_out() {
    let _watchdog = Watchdog::new("a_broadcast_that_is_shorter_at_its_root_is_carried_out");
    let lengths = [(1, 8), (40, 80), (48, 4000), (8, 30_000), (5000, 30_000), (30_000, 32_000)];
    for (index, (at_root, elsewhere)) in lengths.into_iter().enumerate() {
        for ranks in [2, 3] {
            let settle = |attachment: Attachment, _| {
                attachment.settle_as(if index % 2 == 0 { Policy::Sleep } else { Policy::Spin })
            };
            let targets = with_group_of(ranks, settle, |group| {
                let is_root = group.local_rank() == 1;
                let source = [7_u8; 200_000];
                let mut target = vec![9_u8; 200_000];
                let operation = Operation {
                    action: Action::Broadcast { from: 1 },
                    source: source.as_ptr(),
                    target: target.as_mut_ptr(),
                    len_bytes: if is_root { at_root } else { elsewhere },
                };
                // SAFETY: both are longer than the operation, apart, and live until it is over.
                unsafe { group.run(&operation) }.unwrap();
                for call in [(Action::Barrier, 0), (Action::Allreduce(&Numbered(1)), 64)] {
                    perform(group, call).unwrap();
                }
                (!is_root).then_some(target)
            });
            for target in targets.into_iter().flatten() {
                let received = target.iter().filter(|byte| **byte == 7).count();
                assert_eq!((received, target[at_root]), (at_root, 9), "{at_root} of {elsewhere}");
            }
        }
    }
}

#[test]
fn ranks_that_call_different_operations_are_told_and_named() {
    let _watchdog = Watchdog::new("ranks_that_call_different_operations_are_told_and_named");
    let count = calls().len();
    for (ranks, every) in [(2, 1), (4, 3)] {
        for index in 0..count {
            for other in (index % every..count).step_by(every) {
                if let (
                    (Action::Broadcast { from: 0 }, at_root),
                    (Action::Broadcast { from: 0 }, room),
                ) = (calls()[index], calls()[other])
                    && at_root < room
                {
                    continue;
                }
                // Spinning is slow where the machine has other work: a few of them.
                let spins = ranks == 2 && (index + other) % 5 == 0;
                let policy = if spins { Policy::Spin } else { Policy::Sleep };
                let outcomes = outcomes(ranks, policy, index, other);
                if index == other {
                    assert!(outcomes.iter().all(Result::is_ok), "{ranks} {index}: {outcomes:?}");
                    continue;
                }
                let lost = outcomes[0];
                assert!(
                    outcomes.iter().all(|it| *it == lost),
                    "{ranks} {index} {other}: {outcomes:?}"
                );
                let lost = lost.unwrap_err();
                let LostCause::Disagrees { with, .. } = lost.cause() else {
                    panic!("{ranks} {index} {other}: {outcomes:?}");
                };
                let names_first = (lost.local_rank() == 0) != (with == 0);
                assert!(names_first, "{ranks} {index} {other}: {lost:?}");
            }
        }
    }
}
