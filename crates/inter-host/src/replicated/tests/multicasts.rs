//! One datagram for all members of a group, and what becomes of it where switches do not bring it to each of them.

use std::sync::{Arc, Barrier};

use super::strangers::rounds_beside_a_stranger;
use super::*;

/// Greets, and multicasts where that comes to all: at every level, as loopback brings it to all.
fn begin_to_multicast(member: &mut ReplicatedLevels, subscribed: LevelSet, all: &Barrier) {
    all.wait();
    let reach = member.find_reach(WATCHDOG);
    assert!(reach.by_copies);
    assert_eq!(reach.by_multicast, subscribed);
    member.multicast_at(reach.by_multicast);
    all.wait();
}

/// Runs `body` at every host of groups that multicast.
fn on_all_multicasting<T: Send + 'static>(
    levels: &'static [u32],
    body: impl Fn(u32, ReplicatedLevels) -> T + Send + Sync + Clone + 'static,
) -> Vec<T> {
    let hosts = members(levels, identity(false));
    let all = Arc::new(Barrier::new(hosts.len()));
    on_all(hosts, move |host, mut member| {
        let subscribed = member.subscribe();
        assert!((0..levels.len()).all(|level| subscribed.contains(level)), "{subscribed:?}");
        begin_to_multicast(&mut member, subscribed, &all);
        body(host, member)
    })
}

#[test]
fn multicasts_have_the_bits_of_the_exchange_over_links_and_are_one_a_level() {
    let rounds = 40;
    for levels in [&[2][..], &[7], &[2, 3], &[4, 4]] {
        let expected = expected(levels, rounds);
        let outcomes = on_all_multicasting(levels, move |host, mut member| {
            let greeted = member.stats().datagrams.sent;
            let sums = rounds_of_doubles(&mut member, host, levels, rounds);
            let stats = member.stats();
            (sums, stats.datagrams.sent - greeted, stats.refused)
        });
        for ((sums, sent, refused), expected) in outcomes.into_iter().zip(expected) {
            assert!(sums == expected, "{levels:?}");
            assert_eq!((sent, refused), (u64::from(rounds) * levels.len() as u64, 0), "{levels:?}");
        }
    }
}

/// Where hosts stand in for others, copies go out beside the other levels' multicasts.
#[test]
fn hosts_that_stand_in_for_others_send_copies() {
    let (hosts, levels, rounds) = (11, &[4, 3][..], 40);
    let expected = expected_of(hosts, levels, rounds);
    let members = members_of(hosts, levels, identity(false));
    let all = Arc::new(Barrier::new(members.len()));
    let sums = on_all(members, move |host, mut member| {
        let subscribed = member.subscribe();
        assert!(subscribed.contains(0) && !subscribed.contains(1), "{subscribed:?}");
        member.multicast_at(subscribed);
        all.wait();
        let reach = member.find_reach(WATCHDOG);
        assert!(reach.by_copies && reach.by_multicast.contains(0));
        all.wait();
        let sums = rounds_of_doubles(&mut member, host, levels, rounds);
        assert_eq!(member.multicasts_at(), subscribed);
        sums
    });
    assert!(sums == expected);
}

/// As behind a switch that has forgotten who subscribes. The members ask over links; after a while all that are asked send copies.
#[test]
fn a_host_that_multicasts_come_to_no_more_gets_copies() {
    let (levels, rounds) = (&[4][..], 100);
    let expected = expected(levels, rounds);
    let outcomes = on_all_multicasting(levels, move |host, mut member| {
        let mut sums = Vec::new();
        for round in 0..rounds {
            if (host, round) == (2, 10) {
                member.forget_subscriptions();
            }
            sums.push(round_of_doubles(&mut member, host, levels, round).expect("nobody dies"));
        }
        let is_multicasting = member.multicasts_at().contains(0);
        member.leave();
        (sums, is_multicasting)
    });
    for (host, ((sums, is_multicasting), expected)) in
        outcomes.into_iter().zip(expected).enumerate()
    {
        assert!(sums == expected, "host {host}");
        // What host 2 sends still comes to all.
        assert_eq!(is_multicasting, host == 2, "host {host}");
    }
}

/// A host that computes asks for nothing, and is asked for what it has not sent: neither speaks against multicasts.
#[test]
fn a_host_that_computes_changes_nothing() {
    let (levels, rounds) = (&[4][..], 80);
    let outcomes = on_all_multicasting(levels, move |host, mut member| {
        let greeted = member.stats().datagrams.sent;
        for round in 0..rounds {
            // Longer than a contribution may be late, more often than members are judged by.
            if host == 2 && round % 2 == 0 {
                std::thread::sleep(Duration::from_millis(if round == 0 { 2_000 } else { 10 }));
            }
            round_of_doubles(&mut member, host, levels, round).expect("nobody dies");
        }
        let is_multicasting = member.multicasts_at().contains(0);
        member.leave();
        (is_multicasting, member.stats().datagrams.sent - greeted)
    });
    assert_eq!(outcomes, vec![(true, u64::from(rounds)); 4]);
}

#[test]
fn a_host_that_cannot_take_multicasts_is_found_before_the_first_operation() {
    let levels = &[3][..];
    let hosts = members(levels, identity(false));
    let all = Arc::new(Barrier::new(hosts.len()));
    let reached = on_all(hosts, move |host, mut member| {
        let _ = member.subscribe();
        if host == 1 {
            member.forget_subscriptions();
        }
        all.wait();
        let reach = member.find_reach(WATCHDOG);
        all.wait();
        (reach.by_copies, reach.by_multicast.contains(0))
    });
    assert_eq!(reached, [(true, true), (true, false), (true, true)]);
}

#[test]
fn frames_with_codes_are_never_multicast() {
    let mut hosts = members(&[3], identity(true));
    assert_eq!(hosts[0].subscribe(), LevelSet::default());
}

#[test]
fn a_strangers_multicasts_change_nothing() {
    let (levels, rounds) = (&[3][..], 30);
    let expected = expected(levels, rounds);
    let outcomes = on_all_multicasting(levels, move |host, mut member| {
        let to = member.multicast_address(0);
        let sums = rounds_beside_a_stranger(&mut member, host, levels, rounds, to);
        (sums, member.stats())
    });
    for ((sums, stats), expected) in outcomes.into_iter().zip(expected) {
        assert!(sums == expected);
        assert!(stats.refused > 0 && stats.unqueued > 0, "{stats:?}");
    }
}
