//! Goal: a host that dies or leaves before its first link exists is missed by the hosts that wait for its call. Method:
//! hosts whose links nobody has used; one goes in each of the ways that a process can.

use std::sync::Barrier;

use super::*;

const HOSTS: u32 = 4;

/// How a host goes before its first operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Going {
    /// Its process has ended when the others come.
    Died,
    /// Its process ends.
    Dies,
    /// It closes the communicator, and its process lives on.
    Leaves,
    /// It closes the communicator when the others have waited for a while.
    LeavesLate,
}

/// A barrier's outcome at every host but the one that goes.
fn outcomes(named: AlgorithmChoice, identity: Identity, going: Going, gone: u32) -> Vec<Abort> {
    let barrier: &Barrier = Box::leak(Box::new(Barrier::new(HOSTS as usize)));
    let outcomes = on_all(listening(HOSTS, named, identity).0, move |host, links| {
        let mut links = Some(links).filter(|_| host != gone || going != Going::Died);
        barrier.wait();
        let Some(links) = &mut links else { return None };
        if host == gone {
            match going {
                Going::Died | Going::Dies => {}
                Going::Leaves => links.leave(),
                Going::LeavesLate => {
                    std::thread::sleep(Duration::from_millis(200));
                    links.leave();
                }
            }
            return None;
        }
        Some(allreduce(links, &mut [1.0]).expect_err("it needs all hosts"))
    });
    outcomes.into_iter().flatten().collect()
}

#[test]
fn a_host_that_goes_before_its_first_link_is_missed_and_named() {
    let algorithms =
        [AlgorithmChoice::RecursiveDoubling, AlgorithmChoice::Ring, AlgorithmChoice::Linear];
    for (named, identity) in
        algorithms.into_iter().flat_map(|named| identities().map(|identity| (named, identity)))
    {
        let ways = [Going::Died, Going::Dies, Going::Leaves, Going::LeavesLate];
        let cases = ways.into_iter().flat_map(|going| (0..HOSTS).map(move |gone| (going, gone)));
        check_at_once(cases, |(going, gone)| {
            let lost = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(gone) };
            let heard = outcomes(named, identity, going, gone);
            assert_eq!(heard, [lost; HOSTS as usize - 1], "{named:?} {going:?} {gone}");
        });
    }
}

/// Nobody waits for news to reach a host that is gone, also if it was only rung at.
#[test]
fn news_are_out_when_a_ring_at_a_host_that_is_gone_has_failed() {
    for identity in identities() {
        let (mut hosts, _) = listening(2, AlgorithmChoice::Linear, identity);
        let mut links = hosts.pop().expect("two hosts").links;
        drop(hosts);
        links.raise_alarm(Epoch(1));
        let abort = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(0) };
        let until = Instant::now() + WATCHDOG;
        while !links.peers.spread(abort.into()) {
            assert!(Instant::now() < until, "the news are never out");
            std::thread::yield_now();
        }
    }
}
