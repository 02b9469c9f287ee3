//! Datagrams that a program at the interface puts into rings: the same bits, whatever comes by a ring and whatever by its socket.

use std::process::Command;
use std::sync::{Arc, Barrier};
use std::thread;

use rustix::thread::UnshareFlags;
use tributary_rings::{Hook, IS_BUILT, Service, ServiceOptions};
use tributary_transport::udp::ServiceAddress;

use super::losses::{RATES, with_faults};
use super::strangers::rounds_beside_a_stranger;
use super::*;

const HOOKS: [Hook; 2] = [Hook::TrafficControl, Hook::Generic];

/// Runs a test in a network namespace of its own, in which there is loopback alone. Where that is not possible, says why; a CI run must be able
/// to.
#[allow(clippy::print_stdout, reason = "says what was not possible")]
fn on_loopback_of_its_own(test: impl FnOnce() + Send + 'static) {
    let ran = thread::spawn(move || match leave_network() {
        Ok(()) => test(),
        Err(reason) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "not possible here: {reason}");
            println!("SKIPPED: {reason}");
        }
    });
    ran.join().unwrap();
}

fn leave_network() -> Result<(), String> {
    if !IS_BUILT {
        return Err("no program was built".to_owned());
    }
    // SAFETY: this thread shares nothing else that a network namespace concerns.
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    unshared.map_err(|error| format!("no network namespace: {error}"))?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success());
    Ok(())
}

/// Runs a test while a service is there whose programs sit at this hook.
fn with_service<T>(hook: Hook, test: impl FnOnce(&ServiceAddress) -> T) -> T {
    let address: ServiceAddress = "@rings".parse().expect("a name");
    let service = Service::bind(ServiceOptions {
        address: address.clone(),
        hook,
        interfaces: Vec::new(),
        per_user_max: 1,
        socket_users: Vec::new(),
    });
    let service = service.expect("nobody else has the name here");
    service.serve_while(&|_| (), || test(&address)).expect("it serves to the end")
}

/// Runs `body` at every host of groups, after each has a ring and, if they multicast, that has been proven.
fn on_all_with_rings<T: Send + 'static>(
    mut hosts: Vec<ReplicatedLevels>,
    service: &ServiceAddress,
    multicasts: bool,
    body: impl Fn(u32, ReplicatedLevels) -> T + Send + Sync + Clone + 'static,
) -> Vec<T> {
    if multicasts {
        for member in &mut hosts {
            let subscribed = member.subscribe();
            member.multicast_at(subscribed);
        }
    }
    for member in &mut hosts {
        member.receive_by_ring(service).expect("a ring");
    }
    let all = Arc::new(Barrier::new(hosts.len()));
    on_all(hosts, move |host, member| {
        all.wait();
        body(host, member)
    })
}

#[test]
fn what_comes_by_rings_has_the_bits_of_the_exchange_over_links() {
    on_loopback_of_its_own(|| {
        let rounds = 40;
        for levels in [&[2][..], &[3], &[7], &[2, 3], &[4, 4]] {
            let expected = expected(levels, rounds);
            for (hook, multicasts) in HOOKS.into_iter().flat_map(|it| [(it, false), (it, true)]) {
                let name = format!("{levels:?}, {hook:?}, multicasts: {multicasts}");
                let hosts = members(levels, identity(false));
                let outcomes = with_service(hook, |service| {
                    on_all_with_rings(hosts, service, multicasts, move |host, mut member| {
                        let sums = rounds_of_doubles(&mut member, host, levels, rounds);
                        (sums, member.stats())
                    })
                });
                for ((sums, stats), expected) in outcomes.into_iter().zip(expected.clone()) {
                    assert!(sums == expected, "{name}");
                    assert_eq!(stats.refused, 0, "{name}: {stats:?}");
                    assert!(stats.datagrams.past_stack > 0, "{name}: {stats:?}");
                }
            }
        }
    });
}

/// Rings are given back and taken again, more often than there are any.
#[test]
fn rings_serve_one_communicator_after_another() {
    on_loopback_of_its_own(|| {
        let (levels, rounds) = (&[4][..], 9);
        let expected = expected(levels, rounds);
        for hook in HOOKS {
            with_service(hook, |service| {
                for time in 0..20 {
                    let hosts = members(levels, identity(false));
                    let outcomes =
                        on_all_with_rings(hosts, service, true, move |host, mut member| {
                            let sums = rounds_of_doubles(&mut member, host, levels, rounds);
                            (sums, member.stats().datagrams.past_stack)
                        });
                    for ((sums, past_stack), expected) in outcomes.into_iter().zip(&expected) {
                        assert!(sums == *expected, "{hook:?}, time {time}");
                        assert!(past_stack > 0, "{hook:?}, time {time}");
                    }
                }
            });
        }
    });
}

#[test]
fn whatever_is_lost_before_it_comes_to_a_ring_the_bits_are_the_same() {
    on_loopback_of_its_own(|| {
        let rounds = 24;
        for (hosts, levels) in [(2, &[2][..]), (6, &[3, 2]), (11, &[4, 3])] {
            let expected = expected_of(hosts, levels, rounds);
            for (seed, rates) in (1..).zip(RATES) {
                let members = members_of(hosts, levels, identity(seed % 2 == 0));
                let members = with_faults(members, seed, rates);
                let sums = with_service(HOOKS[seed as usize % 2], |service| {
                    on_all_with_rings(members, service, false, move |host, mut member| {
                        rounds_of_doubles(&mut member, host, levels, rounds)
                    })
                });
                assert!(sums == expected, "{hosts}: {levels:?}, seed {seed}, {rates:?}");
            }
        }
    });
}

#[test]
fn what_strangers_put_into_a_ring_changes_nothing_and_is_counted() {
    on_loopback_of_its_own(|| {
        let (levels, rounds) = (&[3][..], 30);
        for (hook, multicasts) in [(HOOKS[0], true), (HOOKS[1], false)] {
            let expected = expected(levels, rounds);
            let hosts = members(levels, identity(false));
            let outcomes = with_service(hook, |service| {
                on_all_with_rings(hosts, service, multicasts, move |host, mut member| {
                    let to = member.datagram_address();
                    let sums = rounds_beside_a_stranger(&mut member, host, levels, rounds, to);
                    (sums, member.stats())
                })
            });
            for ((sums, stats), expected) in outcomes.into_iter().zip(expected) {
                assert!(sums == expected, "{hook:?}");
                assert!(stats.refused > 0 && stats.unqueued > 0, "{hook:?}: {stats:?}");
            }
        }
    });
}
