//! Datagrams that are lost, repeated and overtaken.

use std::sync::{Arc, Barrier};

use super::faults::{Faults, Rates};
use super::*;

/// Few datagrams are lost, many, half of them, and all.
pub(super) const RATES: [Rates; 4] = [
    Rates { lost: 5, repeated: 50, late: 50 },
    Rates { lost: 100, repeated: 300, late: 300 },
    Rates { lost: 500, repeated: 100, late: 900 },
    Rates { lost: 1000, repeated: 0, late: 0 },
];

pub(super) fn with_faults(
    mut hosts: Vec<ReplicatedLevels>,
    seed: u64,
    rates: Rates,
) -> Vec<ReplicatedLevels> {
    for (host, member) in (0..).zip(&mut hosts) {
        member.inject(Faults::new(seed << 8 | host, rates));
    }
    hosts
}

#[test]
fn whatever_datagrams_are_lost_repeated_or_late_the_bits_are_the_same() {
    let rounds = 24;
    let even = [&[2][..], &[5], &[3, 2], &[4, 4]].map(|levels| (levels.iter().product(), levels));
    for (hosts, levels) in even.into_iter().chain(UNEVEN) {
        let expected = expected_of(hosts, levels, rounds);
        for (seed, rates) in (1..).zip(RATES) {
            let members = members_of(hosts, levels, identity(seed % 2 == 0));
            let sums = on_all(with_faults(members, seed, rates), move |host, mut member| {
                rounds_of_doubles(&mut member, host, levels, rounds)
            });
            assert!(sums == expected, "{hosts}: {levels:?}, seed {seed}, {rates:?}");
        }
    }
}

/// A host leaves as soon as it is done. What another lacks of it is lost, and comes over a link that has an end.
#[test]
fn a_host_that_leaves_at_once_leaves_its_last_sum_behind() {
    for seed in 1..20 {
        let levels = &[3][..];
        let hosts = members(levels, identity(false));
        let hosts = with_faults(hosts, seed, Rates { lost: 700, ..Rates::default() });
        let sums = on_all(hosts, move |host, mut member| {
            rounds_of_doubles(&mut member, host, levels, 1 + seed as u32 % 3)
        });
        assert!(sums.iter().all(|it| *it == sums[0]), "seed {seed}");
    }
}

/// A host that computes can neither answer nor contribute. Others wait: they send what they contribute once, and ask once.
#[test]
fn a_host_that_computes_is_waited_for_without_a_flood() {
    let levels = &[4][..];
    let counts = on_all(members(levels, identity(false)), move |host, mut member| {
        for round in 0..4 {
            if host == 2 && round == 2 {
                std::thread::sleep(Duration::from_secs(2));
            }
            round_of_doubles(&mut member, host, levels, round).unwrap();
        }
        member.leave();
        member.stats()
    });
    for (host, stats) in counts.iter().enumerate() {
        assert_eq!(stats.datagrams.sent, 4 * 3, "host {host}: {stats:?}");
        // For each other host and operation a question, an answer and what it waits for, and questions for the sum at doubling
        // distances, of which fifteen take a minute; and the last sum. A host that asked at each of its timers would ask 3,000
        // times.
        assert!(stats.said <= (4 * (3 + 15) + 1) * 3, "host {host}: {stats:?}");
        if host != 2 {
            // It sleeps: at most 20 ms at a time.
            assert!((1..2_000).contains(&stats.sleeps), "host {host}: {stats:?}");
        }
    }
}

/// What a host has sent is lost, and the host computes: it answers nothing. One that has the sum does.
#[test]
fn what_a_host_that_computes_has_sent_is_had_from_others() {
    let levels = &[3][..];
    let mut hosts = members(levels, identity(false));
    hosts[0].inject(Faults::on_the_way_to(1));
    let has_completed = Arc::new(Barrier::new(2));
    let sums = on_all(hosts, move |host, mut member| {
        // Too long to be repeated.
        let long = 5;
        let first = round_of_doubles(&mut member, host, levels, long).unwrap();
        if host < 2 {
            // Host 0 does nothing until host 1 has completed.
            has_completed.wait();
        }
        let second = round_of_doubles(&mut member, host, levels, long).unwrap();
        member.leave();
        [first, second]
    });
    assert!(sums.iter().all(|it| *it == sums[0]));
}
