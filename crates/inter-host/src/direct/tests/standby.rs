//! Goal: links that stand by for the loss of a tree may end without harm, and who has died is found all the same. Method:
//! four hosts use their links, which then end at some of them, or a host dies, before they are needed again.

use std::sync::Barrier;

use super::*;

const HOSTS: u32 = 4;
/// Time enough to be told of an ended link over loopback.
const A_WHILE: Duration = Duration::from_millis(20);

/// Four hosts whose links stand by after an operation, and a barrier for them.
fn on_all_standing_by<T: Send + 'static>(
    named: AlgorithmChoice,
    identity: Identity,
    body: impl Fn(u32, Host, &Barrier) -> T + Send + Sync + Copy + 'static,
) -> Vec<T> {
    let barrier: &Barrier = Box::leak(Box::new(Barrier::new(HOSTS as usize)));
    on_all(listening(HOSTS, named, identity).0, move |host, mut links| {
        assert_eq!(sum(host, &mut links), Ok(10.0));
        links.stand_by();
        barrier.wait();
        body(host, links, barrier)
    })
}

/// The sum of the hosts' numbers, from 1 on.
fn sum(host: u32, links: &mut Host) -> Result<f32, Abort> {
    let mut vector = [host as f32 + 1.0];
    allreduce(links, &mut vector).map(|()| vector[0])
}

/// Looks after the links, as a host does whose tree stands; they call for nothing.
fn look_after(links: &mut Host) {
    let until = Instant::now() + A_WHILE;
    while Instant::now() < until {
        assert_eq!(links.is_called(Epoch(1)), Ok(false), "nobody has lost the tree");
        std::thread::yield_now();
    }
}

fn choices() -> impl Iterator<Item = (AlgorithmChoice, Identity)> {
    let algorithms =
        [AlgorithmChoice::RecursiveDoubling, AlgorithmChoice::Ring, AlgorithmChoice::Linear];
    algorithms.into_iter().flat_map(|named| identities().map(|identity| (named, identity)))
}

/// Every choice of hosts that end their links. They and the others notice at once, or when they need them.
#[test]
fn links_that_end_while_they_stand_by_are_made_anew() {
    for (named, identity) in choices() {
        for ending in 1..1_u32 << HOSTS {
            for noticing in [0, 0b0101, 0b1010, 0b1111] {
                let sums = on_all_standing_by(named, identity, move |host, mut links, barrier| {
                    if ending & 1 << host != 0 {
                        (0..HOSTS).for_each(|other| links.peers.end_link(other));
                    }
                    if noticing & 1 << host != 0 {
                        look_after(&mut links);
                    }
                    barrier.wait();
                    let done = sum(host, &mut links);
                    links.leave();
                    done
                });
                assert_eq!(sums, [Ok(10.0); HOSTS as usize], "{named:?} {ending:b} {noticing:b}");
            }
        }
    }
}

/// A network that loses packets delivers a ring after the call that it asks for, and after the operations over that link:
/// the link is good, and another host may still need it.
#[test]
fn a_ring_that_is_late_ends_no_link_that_stands_by() {
    for (last_call, is_forgotten) in [(0, false), (1, true)] {
        let identity = identity(7, false);
        let (hosts, addresses) = listening(2, AlgorithmChoice::Linear, identity);
        let late = connect_tcp(addresses[0], options(), WATCHDOG);
        let mut late = late.expect("host 0 listens");
        let mut hosts = on_all(hosts, |host, mut links| {
            assert_eq!(sum(host, &mut links), Ok(3.0));
            links
        });
        hosts[0].links.stand_by();
        let epoch = Purpose::Link { call: last_call }.epoch();
        let ring = Header { edge: Edge { epoch, ..edge_of(identity, 1) }, message: Message::Join };
        assert_eq!(late.send(&ring.encode(), &[]), Ok(Sent::Taken));
        look_after(&mut hosts[0]);
        let until = Instant::now() + A_WHILE;
        while hosts[1].links.peers.check().is_ok() && Instant::now() < until {
            std::thread::yield_now();
        }
        assert_eq!(
            hosts[1].links.peers.check().is_err(),
            is_forgotten,
            "ring after call {last_call}"
        );
    }
}

/// The host that should call is late, and may have noticed nothing.
#[test]
fn a_host_that_is_rung_at_may_be_late() {
    for (named, identity) in choices() {
        let sums = on_all_standing_by(named, identity, |host, mut links, barrier| {
            (0..HOSTS).for_each(|other| links.peers.end_link(other));
            barrier.wait();
            std::thread::sleep(A_WHILE * (HOSTS - host));
            let done = sum(host, &mut links);
            links.leave();
            done
        });
        assert_eq!(sums, [Ok(10.0); HOSTS as usize], "{named:?}");
    }
}

/// All links have ended, so nothing but calls can tell who is there. A host that calls one that has gone for this reason
/// blames that one; a host that calls the dead one names it.
#[test]
fn a_host_that_dies_while_links_stand_by_is_missed() {
    for (named, identity) in choices() {
        let cases = (0..HOSTS)
            .flat_map(|dying| [0, 0b0101, 0b1010, 0b1111].map(|noticing| (dying, noticing)));
        check_at_once(cases, |(dying, noticing)| {
            let outcomes = on_all_standing_by(named, identity, move |host, mut links, barrier| {
                (0..HOSTS).for_each(|other| links.peers.end_link(other));
                if noticing & 1 << host != 0 {
                    look_after(&mut links);
                }
                if host == dying {
                    drop(links);
                    barrier.wait();
                    return Ok(0.0);
                }
                barrier.wait();
                sum(host, &mut links)
            });
            let blamed: Vec<u32> = (0..)
                .zip(outcomes)
                .filter(|(host, _)| *host != dying)
                .map(|(host, outcome)| {
                    let abort = outcome.expect_err("it needs all hosts");
                    assert_eq!(abort.reason, AbortReason::MemberLost);
                    assert_ne!(abort.at_fault.0, host);
                    abort.at_fault.0
                })
                .collect();
            assert!(blamed.contains(&dying), "{named:?} {dying} {noticing:b}: {blamed:?}");
        });
    }
}

/// The tree tells of a failure. Calls over links that no operation has used would look like the loss of a tree.
#[test]
fn a_host_that_gives_up_while_links_stand_by_calls_nobody() {
    let identity = identity(7, false);
    let (mut hosts, _) = listening(2, AlgorithmChoice::Auto, identity);
    hosts[0].links.stand_by();
    hosts[0].links.abort(AbortReason::Disagreement);
    assert_eq!(hosts[1].links.is_called(Epoch(1)), Ok(false));
    assert_eq!(hosts[1].links.callers().count(), 0);
}

/// A tree tells some hosts who is gone, while another has lost its part of that tree, and settles the loss over links.
#[test]
fn a_host_that_passes_a_failure_on_names_who_failed_to_hosts_that_come_later() {
    let gone = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(1) };
    for (identity, is_asked_first) in
        identities().into_iter().flat_map(|it| [(it, false), (it, true)])
    {
        let (mut hosts, _) = listening(3, AlgorithmChoice::Binomial, identity);
        let mut settling = hosts.pop().expect("three hosts listen");
        let mut told = hosts.swap_remove(0);
        drop(hosts);
        told.pass_on(gone);
        drop(told);
        if is_asked_first {
            let deadline = Instant::now() + WATCHDOG;
            let heard = loop {
                assert!(Instant::now() < deadline, "the call is heard");
                match settling.is_called(Epoch(1)) {
                    Ok(false) => {}
                    heard => break heard,
                }
            };
            assert_eq!(heard, Err(gone), "it says what it is for");
        }
        assert_eq!(
            allreduce(&mut settling, &mut [1.0]),
            Err(gone),
            "asked first: {is_asked_first}"
        );
    }
}

/// As where ranks of one host disagree in the first call. The host with the higher number has not been called.
#[test]
fn a_host_that_gives_up_before_its_first_operation_is_heard_by_hosts_that_come_to_theirs() {
    for (identity, gives_up) in identities().into_iter().flat_map(|it| [(it, 0), (it, 1)]) {
        let (mut hosts, _) = listening(2, AlgorithmChoice::Binomial, identity);
        let mut other = hosts.remove(1 - gives_up);
        let mut host = hosts.remove(0);
        host.abort(AbortReason::Disagreement);
        drop(host);
        let told =
            Abort { reason: AbortReason::Disagreement, at_fault: EndpointId(gives_up as u32) };
        assert_eq!(allreduce(&mut other, &mut [1.0]), Err(told), "host {gives_up} gives up");
    }
}
