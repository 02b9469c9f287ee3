//! Ranks that end, leave or give up while others wait for them, or write to their memory.

use super::failure::{Lost, LostCause};
use super::member::{ENDS, Manner, Member, at_all, members};
use super::operation::Action;
use super::sync::{Broken, Purpose, explore};
use super::waiting::{PeerCheck, Policy, check_each_time};

const VICTIM: u32 = 1;
const SHORT: usize = 12;
const DIRECT: usize = 32 * 1024;
const REDUCE: Action = Action::Reduce { to: 0, kernel: &ENDS };

fn check(broken: Broken, ranks: u32, check: PeerCheck, preemptions_max: usize, body: fn(Member)) {
    check_each_time(check);
    explore(broken, preemptions_max, move || at_all(members(ranks, Policy::Spin), body));
}

/// The victim is killed after `operations` operations; the others learn of it in the next at the
/// latest, and by all that follow.
fn killed_after<const OPERATIONS: u32>(mut member: Member) {
    let lost = Err(Lost::new(VICTIM, LostCause::Died));
    let steps = [(REDUCE, SHORT), (Action::Barrier, 0)];
    for (at, (action, len_bytes)) in (0..).zip(steps) {
        if member.rank() == VICTIM && at == OPERATIONS {
            return member.end();
        }
        let outcome = member.perform(action, len_bytes, Manner::Begun);
        if at < OPERATIONS && member.rank() == 0 {
            assert_eq!(outcome, Ok(()), "the victim had done its part");
        }
        // A rank that only sends may not have checked yet, or have learned of it from one that did.
        assert!(outcome == Ok(()) || outcome == lost, "{outcome:?}");
    }
    let outcome = member.perform(Action::Barrier, 0, Manner::Begun);
    assert_eq!(outcome, lost, "rank {}", member.rank());
}

#[test]
fn all_are_told_of_a_rank_that_is_killed() {
    check(Broken::Nothing, 2, PeerCheck::Full, 2, killed_after::<0>);
    check(Broken::Nothing, 2, PeerCheck::Full, 2, killed_after::<1>);
    check(Broken::Nothing, 3, PeerCheck::Full, 1, killed_after::<1>);
}

/// A rank that leaves after its part harms nobody.
fn leaves_after_its_part(mut member: Member) {
    assert_eq!(member.perform(Action::Broadcast { from: VICTIM }, SHORT, Manner::Begun), Ok(()));
}

#[test]
fn a_rank_that_leaves_after_its_part_harms_nobody() {
    check(Broken::Nothing, 2, PeerCheck::Full, 3, leaves_after_its_part);
}

#[test]
#[should_panic(expected = "Left")]
fn canary_leaving_without_order_hides_what_was_published() {
    check(Broken::Order(Purpose::Departed), 2, PeerCheck::Full, 3, leaves_after_its_part);
}

/// The victim gives up while it waits; its buffers are its own again only when nobody writes to
/// them.
fn gives_up(mut member: Member) {
    if member.rank() == VICTIM {
        member.group.set_idle(|| Err(9));
    }
    let outcome = member.perform(Action::Allreduce(&ENDS), DIRECT, Manner::Begun);
    let lost = Err(Lost::new(VICTIM, LostCause::Reported(9)));
    assert!(outcome == Ok(()) || outcome == lost, "{outcome:?}");
}

#[test]
fn a_rank_that_gives_up_outlasts_those_that_write_to_its_memory() {
    check(Broken::Nothing, 2, PeerCheck::Cheap, 3, gives_up);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_without_fences_a_writer_is_not_outlasted() {
    check(Broken::Fences, 2, PeerCheck::Cheap, 3, gives_up);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_without_order_a_writer_is_not_outlasted() {
    check(Broken::Order(Purpose::Writing), 2, PeerCheck::Cheap, 3, gives_up);
}
