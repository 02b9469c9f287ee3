//! Every kind of operation, often enough that each slot is filled again while others may still be
//! reading it.

use super::failure::Lost;
use super::member::{ENDS, Manner, Member, at_all, members};
use super::operation::{Action, Blocks};
use super::sync::{Broken, Purpose, explore};
use super::waiting::{PeerCheck, Policy, check_each_time};

/// Fits a slot of the line ring.
const LINE: usize = 8;
/// Fits a slot of the short ring, and an exchange slot.
const SHORT: usize = 12;
/// One piece of the long ring.
const ONE_PIECE: usize = 4 * 1024;
/// Two pieces of the long ring.
const LONG: usize = 8 * 1024 + 4;
/// Three pieces of a chain: more than there are slots.
const CHAIN: usize = 2 * 8 * 1024 + 4;
/// Goes from process to process.
const DIRECT: usize = 32 * 1024;

const ALLREDUCE: Action = Action::Allreduce(&ENDS);
const REDUCE: Action = Action::Reduce { to: 0, kernel: &ENDS };
const BROADCAST: Action = Action::Broadcast { from: 0 };
const SCATTER: Action = Action::ReduceScatter { kernel: &ENDS, blocks: Blocks::Even };
const SCAN: Action = Action::Scan { kernel: &ENDS, inclusive: true };

type Script = fn(&mut Member) -> Result<(), Lost>;

/// Explores `script` at every rank. Two ranks wait as with a core each, which only then may use
/// each other's memory; more sleep.
fn check(broken: Broken, ranks: u32, preemptions_max: usize, script: Script) {
    let policy = if ranks == 2 { Policy::Spin } else { Policy::Sleep };
    check_with(broken, ranks, policy, preemptions_max, script);
}

fn check_with(broken: Broken, ranks: u32, policy: Policy, preemptions_max: usize, script: Script) {
    check_each_time(PeerCheck::None);
    explore(broken, preemptions_max, move || {
        at_all(members(ranks, policy), move |mut member| {
            assert_eq!(script(&mut member), Ok(()));
        });
    });
}

/// The same operation, so many times.
fn repeat(
    member: &mut Member,
    times: u32,
    action: Action,
    len_bytes: usize,
    manner: Manner,
) -> Result<(), Lost> {
    (0..times).try_for_each(|_| member.perform(action, len_bytes, manner))
}

fn exchange(member: &mut Member) -> Result<(), Lost> {
    repeat(member, 2, ALLREDUCE, SHORT, Manner::Blocking)?;
    repeat(member, 1, ALLREDUCE, SHORT, Manner::Begun)
}

#[test]
fn two_ranks_trade_boxes() {
    check(Broken::Nothing, 2, 3, exchange);
    check(Broken::Nothing, 2, 3, |member| repeat(member, 3, Action::Barrier, 0, Manner::Blocking));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_flags_without_order_tear_a_slot() {
    check(Broken::Order(Purpose::Flag), 2, 3, exchange);
}

fn lines(member: &mut Member) -> Result<(), Lost> {
    repeat(member, 4, BROADCAST, LINE, Manner::Blocking)
}

#[test]
fn lines_go_one_way() {
    check(Broken::Nothing, 2, 2, lines);
    check(Broken::Nothing, 2, 2, |member| repeat(member, 4, REDUCE, LINE, Manner::Blocking));
    check(Broken::Nothing, 3, 1, |member| repeat(member, 3, BROADCAST, LINE, Manner::Blocking));
    check(Broken::Nothing, 3, 1, |member| repeat(member, 3, REDUCE, LINE, Manner::Blocking));
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_flags_without_order_tear_a_line() {
    check(Broken::Order(Purpose::Flag), 2, 3, lines);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_counters_without_order_let_a_line_be_overwritten() {
    check(Broken::Order(Purpose::Done), 2, 3, lines);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_filling_without_a_claim_overwrites_a_line() {
    check(Broken::Claims, 2, 3, lines);
}

#[test]
fn short_vectors_are_exchanged_gathered_spread_and_transferred() {
    check(Broken::Nothing, 3, 1, |member| repeat(member, 2, ALLREDUCE, SHORT, Manner::Begun));
    check(Broken::Nothing, 3, 1, |member| {
        member.perform(REDUCE, SHORT, Manner::Begun)?;
        member.perform(BROADCAST, SHORT, Manner::Begun)?;
        member.perform(Action::Transfer { from: 1, to: 2 }, SHORT, Manner::Begun)
    });
}

fn shares(member: &mut Member) -> Result<(), Lost> {
    member.perform(ALLREDUCE, LONG, Manner::Begun)
}

#[test]
fn medium_vectors_are_scattered_and_their_shares_collected() {
    check(Broken::Nothing, 3, 1, |member| member.perform(ALLREDUCE, ONE_PIECE, Manner::Begun));
    check(Broken::Nothing, 3, 1, |member| member.perform(REDUCE, ONE_PIECE, Manner::Begun));
    check(Broken::Nothing, 2, 1, |member| {
        repeat(member, 2, ALLREDUCE, LONG, Manner::Begun)?;
        member.perform(BROADCAST, LONG, Manner::Begun)
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_flags_without_order_tear_a_share() {
    check_with(Broken::Order(Purpose::Flag), 3, Policy::Spin, 1, shares);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_counters_without_order_let_a_piece_be_overwritten() {
    check(Broken::Order(Purpose::Done), 2, 3, |member| {
        repeat(member, 3, BROADCAST, LONG, Manner::Begun)
    });
}

#[test]
fn pieces_are_gathered_and_blocks_scattered() {
    check(Broken::Nothing, 2, 1, |member| {
        repeat(member, 2, Action::Allgather, LONG, Manner::Begun)
    });
    check(Broken::Nothing, 3, 1, |member| {
        repeat(member, 2, Action::Allgather, SHORT, Manner::Begun)
    });
    check(Broken::Nothing, 2, 1, |member| repeat(member, 2, SCATTER, 2 * LONG, Manner::Begun));
    check(Broken::Nothing, 3, 1, |member| repeat(member, 2, SCATTER, SHORT, Manner::Begun));
}

fn gather(member: &mut Member) -> Result<(), Lost> {
    repeat(member, 3, Action::Gather { to: 0 }, LINE, Manner::Begun)
}

fn scatter(member: &mut Member) -> Result<(), Lost> {
    let action = Action::Scatter { from: 0, element_bytes: 1, blocks: Blocks::Even };
    repeat(member, 3, action, LINE, Manner::Begun)
}

#[test]
fn one_rank_gathers_and_one_scatters() {
    check(Broken::Nothing, 2, 2, gather);
    check(Broken::Nothing, 3, 1, gather);
    check(Broken::Nothing, 2, 2, scatter);
    check(Broken::Nothing, 3, 1, |member| {
        let action = Action::Scatter { from: 1, element_bytes: 1, blocks: Blocks::Even };
        repeat(member, 2, action, SHORT, Manner::Begun)
    });
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_filling_without_a_claim_overwrites_what_is_gathered() {
    check(Broken::Claims, 2, 3, gather);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_filling_without_a_claim_overwrites_what_is_scattered() {
    check(Broken::Claims, 2, 3, scatter);
}

#[test]
fn scans_read_the_ranks_before() {
    check(Broken::Nothing, 2, 2, |member| repeat(member, 3, SCAN, LINE, Manner::Blocking));
    check(Broken::Nothing, 3, 1, |member| repeat(member, 2, SCAN, LINE, Manner::Blocking));
    check(Broken::Nothing, 3, 1, |member| {
        let exclusive = Action::Scan { kernel: &ENDS, inclusive: false };
        repeat(member, 2, exclusive, SHORT, Manner::Begun)
    });
}

fn chain(member: &mut Member) -> Result<(), Lost> {
    member.perform(SCAN, CHAIN, Manner::Begun)
}

#[test]
fn long_scans_hand_the_reduction_on() {
    check(Broken::Nothing, 3, 1, chain);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_chain_without_counters_overwrites_what_is_read() {
    check_with(Broken::Claims, 3, Policy::Spin, 1, chain);
}

fn direct(member: &mut Member) -> Result<(), Lost> {
    member.perform(ALLREDUCE, DIRECT, Manner::Begun)?;
    member.perform(BROADCAST, DIRECT, Manner::Begun)?;
    assert!(member.group.is_direct());
    Ok(())
}

#[test]
fn long_vectors_go_directly() {
    check(Broken::Nothing, 2, 2, direct);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_openings_without_order_write_to_buffers_in_use() {
    check(Broken::Order(Purpose::Flag), 2, 2, direct);
}

/// The kernel refuses the second rank what the opening has found to be granted.
fn refused_later(member: &mut Member) -> Result<(), Lost> {
    member.group.rings.peer_memory.refused = member.rank() == 1;
    member.perform(ALLREDUCE, DIRECT, Manner::Begun)?;
    assert!(!member.group.is_direct());
    Ok(())
}

#[test]
fn what_is_refused_later_is_staged() {
    check(Broken::Nothing, 2, 1, refused_later);
}
