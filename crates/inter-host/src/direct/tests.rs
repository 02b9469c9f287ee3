//! Goal: hosts joined directly agree whatever happens on the links. Method: hosts are threads, their
//! links loopback TCP; a watchdog ends what hangs.

mod authentication;
mod blame;
mod disagreement;
mod first;
mod parts;
mod standby;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tributary_transport::{Link as _, connect_tcp};
use tributary_wire::frame::{Edge, Header, Message, Versions};
use tributary_wire::{ChildIndex, Epoch};

use tributary_algorithms::{
    Algorithm, Collective, CollectiveKind, Order, Radices, Schedule, Shape,
};
use tributary_shm_collectives::Blocks;
use tributary_transport::Sent;
use tributary_tuning::AlgorithmChoice;
use tributary_wire::frame::{Abort, AbortReason};
use tributary_wire::{Datatype, EndpointId, Operator};

use super::options::options;
use super::purpose::Purpose;
use super::*;
use crate::kernels::kernel;
use crate::operation::{InterHost, InterHostOperation};

/// Longest a test's hosts may take: they deadlock, or they are done long before.
const WATCHDOG: Duration = Duration::from_secs(60);

fn identity(byte: u8, authenticates: bool) -> Identity {
    Identity::from_bytes([byte; Identity::BYTES], authenticates)
}

/// One communicator's identity, for frames without codes and with them.
fn identities() -> [Identity; 2] {
    [false, true].map(|authenticates| identity(7, authenticates))
}

/// Checks all cases at the same time, because hosts mostly wait in them.
fn check_at_once<T: Send>(cases: impl IntoIterator<Item = T>, check: impl Fn(T) + Sync) {
    std::thread::scope(|scope| {
        for case in cases {
            let check = &check;
            scope.spawn(move || check(case));
        }
    });
}

/// Where the frames of `host` say that they come from.
fn edge_of(identity: Identity, host: u16) -> Edge {
    Edge {
        group: identity.group,
        epoch: Epoch(0),
        child: ChildIndex(host),
        capability: identity.secret,
        version: Versions::SPOKEN.newest,
    }
}

/// A host's links, and the algorithm of its operations.
struct Host {
    links: DirectLinks,
    named: AlgorithmChoice,
    hosts: u32,
}

impl Host {
    /// The algorithm that is named, where it has a form for the collective.
    fn algorithm(&self, collective: Collective) -> Algorithm {
        let shape = Shape { ranks: self.hosts, elements: 1, order: Order::Any };
        let has_form =
            |algorithm: &Algorithm| Schedule::new(*algorithm, collective, shape, 0).is_ok();
        self.named.algorithm().filter(has_form).unwrap_or(Algorithm::Binomial)
    }
}

impl std::ops::Deref for Host {
    type Target = DirectLinks;

    fn deref(&self) -> &DirectLinks {
        &self.links
    }
}

impl std::ops::DerefMut for Host {
    fn deref_mut(&mut self) -> &mut DirectLinks {
        &mut self.links
    }
}

/// An address of this machine that nobody else has: cases that are checked at the same time share a secret, and a port that a
/// host leaves is another's at once.
fn own_address() -> IpAddr {
    static LAST: AtomicU16 = AtomicU16::new(0);
    let [high, low] = (LAST.fetch_add(1, Ordering::Relaxed) + 1).to_be_bytes();
    // Tests of other processes may run as well.
    Ipv4Addr::new(127, 1 + (std::process::id() % 250) as u8, high, low).into()
}

/// Hosts that listen, and their addresses.
fn listening(
    count: u32,
    named: AlgorithmChoice,
    identity: Identity,
) -> (Vec<Host>, Vec<SocketAddr>) {
    let local = own_address();
    let listeners: Vec<_> = (0..count).map(|_| Listener::bind(local, None).unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
    let host = |(host, (listener, _))| {
        let links = DirectLinks::new(host, identity, listener, addresses.clone());
        Host { links, named, hosts: count }
    };
    let hosts = (0..count).zip(listeners).map(host).collect();
    (hosts, addresses)
}

/// Runs `body` at every host, and gives what they return.
fn on_all<T: Send + 'static>(
    hosts: Vec<Host>,
    body: impl Fn(u32, Host) -> T + Send + Sync + Copy + 'static,
) -> Vec<T> {
    let (done, finished) = mpsc::channel();
    let count = hosts.len();
    for (host, links) in hosts.into_iter().enumerate() {
        let done = done.clone();
        std::thread::spawn(move || {
            done.send((host, body(host as u32, links))).expect("the test waits");
        });
    }
    let deadline = Instant::now() + WATCHDOG;
    let mut results: Vec<_> = (0..count)
        .map(|_| {
            let left = deadline.saturating_duration_since(Instant::now());
            finished.recv_timeout(left).expect("hosts neither fail nor hang")
        })
        .collect();
    results.sort_by_key(|(host, _)| *host);
    results.into_iter().map(|(_, result)| result).collect()
}

fn allreduce_of(vector: &mut [f32], algorithm: Algorithm) -> InterHostOperation {
    InterHostOperation {
        collective: Collective::Allreduce,
        called: CollectiveKind::Allreduce,
        root_called: 0,
        operator: Operator::Sum,
        datatype: Datatype::F32,
        element_bytes: Datatype::F32.size_bytes(),
        order: Order::Any,
        elements: vector.len() as u64,
        algorithm,
        parts: Blocks::Even,
        kernel: kernel(Operator::Sum, Datatype::F32),
        source: std::ptr::null(),
        target: vector.as_mut_ptr().cast(),
    }
}

/// From host 0, in place.
fn broadcast_of(vector: &mut [f32], algorithm: Algorithm) -> InterHostOperation {
    InterHostOperation {
        collective: Collective::Broadcast { root: 0 },
        called: CollectiveKind::Broadcast,
        operator: Operator::Broadcast,
        source: vector.as_ptr().cast(),
        ..allreduce_of(vector, algorithm)
    }
}

fn allreduce(links: &mut Host, vector: &mut [f32]) -> Result<(), Abort> {
    let algorithm = links.algorithm(Collective::Allreduce);
    // SAFETY: the vector is borrowed until the operation is over or has failed.
    unsafe { links.start(&allreduce_of(vector, algorithm))? };
    while !links.poll()? {
        links.sleep(Duration::from_millis(5));
        links.check();
    }
    Ok(())
}

/// Values whose sum depends on the order.
fn contribution(host: u32, elements: usize) -> Vec<f32> {
    (0..elements)
        .map(|at| ((at as f32) * 0.37 + host as f32).sin() * 10_f32.powi(host as i32))
        .collect()
}

/// One collective of 4 hosts at `host`, out of `source`; its vector in the end.
fn run_from(
    host: u32,
    links: &mut Host,
    collective: Collective,
    source: &[f32],
    in_place: bool,
) -> Vec<u32> {
    let mut vector = if in_place { source.to_vec() } else { vec![f32::NAN; source.len()] };
    let operation = InterHostOperation {
        collective,
        source: if in_place { std::ptr::null() } else { source.as_ptr().cast() },
        ..allreduce_of(&mut vector, links.algorithm(collective))
    };
    // SAFETY: both are borrowed until the operation is over.
    unsafe { links.start(&operation).unwrap() };
    while !links.poll().unwrap() {
        links.sleep(Duration::from_millis(5));
    }
    let has_result = collective.root().is_none_or(|root| root == host);
    if has_result { vector.iter().map(|value| value.to_bits()).collect() } else { Vec::new() }
}

/// Nothing is copied beforehand, so what a host contributes is combined from two places.
#[test]
fn a_contribution_that_stays_where_it_is_gives_the_bits_of_one_in_the_vector() {
    let choices = AlgorithmChoice::all().flat_map(|named| identities().map(|it| (named, it)));
    for (named, identity) in choices {
        let runs = on_all(listening(4, named, identity).0, |host, mut links| {
            for elements in [1, 3, 5, 1000, 100_003] {
                let source = contribution(host, elements);
                for collective in [
                    Collective::Allreduce,
                    Collective::Reduce { root: 0 },
                    Collective::Reduce { root: 2 },
                ] {
                    let [there, here] = [false, true]
                        .map(|in_place| run_from(host, &mut links, collective, &source, in_place));
                    assert_eq!(there, here, "{elements} elements, {collective:?}");
                    let untouched = contribution(host, elements);
                    assert!(source.iter().zip(&untouched).all(|(a, b)| a.to_bits() == b.to_bits()));
                }
            }
            links.leave();
        });
        assert_eq!(runs.len(), 4);
    }
}

/// A barrier's vectors are nowhere, also where a schedule folds: with more than two to a group.
#[test]
fn barriers_end_with_every_algorithm_that_has_one() {
    let radices = Radices::new(&[4]).expect("radices");
    let algorithms = [
        Algorithm::Dissemination,
        Algorithm::RecursiveKing { radix: 4 },
        Algorithm::MixedRadix { radices },
        Algorithm::Linear,
    ];
    for algorithm in algorithms {
        let hosts = listening(4, AlgorithmChoice::Binomial, identity(7, false)).0;
        on_all(hosts, move |_, mut links| {
            for _ in 0..3 {
                let barrier = InterHostOperation { algorithm, ..InterHostOperation::BARRIER };
                // SAFETY: a barrier has no buffers.
                unsafe { links.start(&barrier).unwrap() };
                while !links.poll().unwrap() {
                    links.sleep(Duration::from_millis(5));
                }
            }
            links.leave();
        });
    }
}

/// Vectors far longer than what sockets hold, so that everybody sends while nobody reads.
#[test]
fn long_vectors_pass_each_other_and_bits_are_equal_on_all_hosts_and_runs() {
    let choices =
        [AlgorithmChoice::RecursiveDoubling, AlgorithmChoice::Ring, AlgorithmChoice::Linear];
    for named in choices {
        let run = |identity| {
            on_all(listening(3, named, identity).0, |host, mut links| {
                let mut vector = contribution(host, 2_000_003);
                allreduce(&mut links, &mut vector).unwrap();
                links.leave();
                vector.iter().map(|value| value.to_bits()).collect::<Vec<_>>()
            })
        };
        let mut runs = identities().into_iter().cycle().take(4).flat_map(run);
        let first = runs.next().expect("three hosts ran");
        assert!(runs.all(|bits| bits == first), "{named:?}");
    }
}

/// In a ring of five, host 3 is connected to 2 and 4 only.
#[test]
fn every_waiting_host_learns_which_one_died() {
    for identity in identities() {
        let outcomes =
            on_all(listening(5, AlgorithmChoice::Ring, identity).0, |host, mut links| {
                let mut vector = contribution(host, 1000);
                let first = allreduce(&mut links, &mut vector);
                if host == 3 {
                    // Ends without a word, as a killed process does; others may still be in the first.
                    return Ok(());
                }
                first.and_then(|()| allreduce(&mut links, &mut vector))
            });
        for (host, outcome) in outcomes.into_iter().enumerate() {
            let died = Abort { reason: AbortReason::MemberLost, at_fault: EndpointId(3) };
            assert_eq!(outcome, if host == 3 { Ok(()) } else { Err(died) }, "host {host}");
        }
    }
}

#[test]
fn a_host_that_leaves_after_its_part_harms_nobody() {
    for identity in identities() {
        on_all(listening(3, AlgorithmChoice::Binomial, identity).0, |host, mut links| {
            for _ in 0..50 {
                allreduce(&mut links, &mut contribution(host, 10)).unwrap();
            }
            links.leave();
        });
    }
}

#[test]
fn an_aborting_host_is_named_by_the_others() {
    for identity in identities() {
        let outcomes =
            on_all(listening(3, AlgorithmChoice::Ring, identity).0, |host, mut links| {
                let first = allreduce(&mut links, &mut contribution(host, 10));
                if host == 1 {
                    links.abort(AbortReason::MemberAborted);
                }
                first.and_then(|()| allreduce(&mut links, &mut contribution(host, 10)))
            });
        let aborted = Abort { reason: AbortReason::MemberAborted, at_fault: EndpointId(1) };
        assert_eq!(outcomes, [Err(aborted); 3]);
    }
}

/// Strangers at every listener: silent ones, garbage, the wrong secret, the right words by a host that
/// should be called instead of calling. Where frames are authenticated, also the right words without a
/// code, or with one under another key: of another communicator, of another pair of hosts, or meant for
/// a later frame.
#[test]
fn strangers_are_turned_away() {
    for identity in identities() {
        let (hosts, addresses) = listening(3, AlgorithmChoice::RecursiveDoubling, identity);
        let call = |address, edge, key| {
            let mut link = connect_tcp(address, options(), WATCHDOG).unwrap();
            if let Some(key) = key {
                link.authenticate(key);
            }
            let join = Header { edge, message: Message::Join }.encode();
            assert_eq!(link.send(&join, &[]), Ok(Sent::Taken));
            link
        };
        let mut strangers = Vec::new();
        for (host, address) in (0..).zip(addresses) {
            strangers.push(connect_tcp(address, options(), WATCHDOG).unwrap());
            let other = Identity::from_bytes([8; Identity::BYTES], true);
            let edge = edge_of(identity, 0);
            let key = identity.link_key([0, host]).map(|key| key.for_frame_number(0));
            strangers.push(call(address, edge_of(other, 0), key));
            let later = [2, 999].map(|caller| (caller, identity.link_key([caller.into(), host])));
            for (caller, key) in later {
                let key = key.map(|key| key.for_frame_number(0));
                strangers.push(call(address, edge_of(identity, caller), key));
            }
            if let Some(key) = identity.link_key([0, host]) {
                let of_another = other.link_key([0, host]).map(|key| key.for_frame_number(0));
                let of_others = identity.link_key([1, 2 - host]).map(|key| key.for_frame_number(0));
                for key in [None, of_another, of_others, Some(key.for_frame_number(1)), Some(key)] {
                    strangers.push(call(address, edge, key));
                }
            }
        }
        let sums = on_all(hosts, |host, mut links| {
            let mut vector = [host as f32 + 1.0];
            allreduce(&mut links, &mut vector).unwrap();
            links.leave();
            vector[0]
        });
        assert_eq!(sums, [6.0; 3]);
        drop(strangers);
    }
}

/// A host that has called waits for one that is late, longer than strangers may take to say who they are.
#[test]
fn a_host_may_be_late_for_the_first_operation() {
    check_at_once(identities(), |identity| {
        let (hosts, _) = listening(4, AlgorithmChoice::RecursiveDoubling, identity);
        let sums = on_all(hosts, |host, mut links| {
            if host == 0 {
                std::thread::sleep(listener::GREETING_TIMEOUT + Duration::from_secs(1));
            }
            let mut vector = [host as f32 + 1.0];
            let done = allreduce(&mut links, &mut vector);
            links.leave();
            done.map(|()| vector[0])
        });
        assert_eq!(sums, [Ok(10.0); 4]);
    });
}

/// Members take their time to greet where ranks wait for a core, and the host that they call must not take that for an end.
/// So many silent strangers that there is no room for members keep them out for a while only.
#[test]
fn a_caller_may_greet_late_while_there_is_room_for_others() {
    let identity = identities()[0];
    for strangers in [0, listener::PENDING_MAX] {
        let (mut listener, address) = Listener::bind([127, 0, 0, 1].into(), None).unwrap();
        let call = || connect_tcp(address, options(), WATCHDOG).unwrap();
        let silent: Vec<_> = (0..strangers).map(|_| call()).collect();
        let mut member = call();
        let called = Instant::now();
        let deadline = called + listener::GREETING_TIMEOUT + Duration::from_secs(1);
        let mut greeted = None;
        let caller = loop {
            let caller = listener.admit(&identity, 1);
            let is_due = strangers > 0 || Instant::now() >= deadline;
            if greeted.is_none() && is_due {
                assert!(caller.is_none(), "it has said nothing");
                let join = Header { edge: edge_of(identity, 0), message: Message::Join };
                greeted = Some(member.send(&join.encode(), &[]));
            }
            if let Some(caller) = caller {
                break caller;
            }
            assert!(called.elapsed() < WATCHDOG, "{strangers} strangers");
            std::thread::sleep(Duration::from_millis(1));
        };
        assert_eq!((caller.host, greeted), (0, Some(Ok(Sent::Taken))));
        assert!(called.elapsed() >= listener::GREETING_TIMEOUT, "strangers have their time, too");
        drop(silent);
    }
}

#[test]
fn a_host_is_called_by_links_frames_and_alarms_but_not_by_what_is_over() {
    let epoch = Epoch(1);
    for identity in identities() {
        let (mut hosts, _) = listening(2, AlgorithmChoice::Auto, identity);
        let mut one = hosts.pop().expect("two hosts listen").links;
        let mut zero = hosts.pop().expect("two hosts listen").links;
        assert_eq!([&mut zero, &mut one].map(|it| it.is_called(epoch)), [Ok(false); 2]);
        one.raise_alarm(epoch);
        let deadline = Instant::now() + WATCHDOG;
        while zero.is_called(epoch) == Ok(false) {
            one.check();
            assert!(Instant::now() < deadline, "the alarm is heard");
        }
        assert_eq!(zero.is_called(Epoch(2)), Ok(false), "it was raised for another loss");
        one.end_alarm();
        let mut vectors = [[1.0], [2.0]];
        let operations = vectors.each_mut().map(|it| broadcast_of(it, Algorithm::Linear));
        // SAFETY: the vectors live until both operations are over.
        unsafe { zero.start(&operations[0]).expect("host 1 can be called") };
        while one.is_called(epoch) == Ok(false) {
            let _ = zero.poll().expect("host 1 lives");
            assert!(Instant::now() < deadline, "what the call is for is heard");
        }
        // SAFETY: as above.
        unsafe { one.start(&operations[1]).expect("host 0 lives") };
        let mut is_over = [false; 2];
        while is_over != [true; 2] {
            is_over[0] = is_over[0] || zero.poll().expect("host 1 lives");
            is_over[1] = is_over[1] || one.poll().expect("host 0 lives");
            assert!(Instant::now() < deadline, "the operation ends");
        }
        one.stand_by();
        assert_eq!(one.is_called(epoch), Ok(false), "what was called for is over");
        zero.leave();
        drop(zero);
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(one.is_called(epoch), Ok(false), "a host that leaves calls nobody");
    }
}

/// A host that has heard of a failure calls, too. One that took its call for the loss of a tree would tell the tree so,
/// before the failure itself has come to hosts that only the tree reaches.
#[test]
fn a_call_that_has_said_nothing_yet_is_not_for_the_loss_of_a_tree() {
    for identity in identities() {
        let (mut hosts, _) = listening(2, AlgorithmChoice::Auto, identity);
        let mut one = hosts.pop().expect("two hosts listen").links;
        let mut zero = hosts.pop().expect("two hosts listen").links;
        one.stand_by();
        // It waits for the other before it sends anything.
        let mut vector = [1.0];
        let operation = allreduce_of(&mut vector, Algorithm::Linear);
        // SAFETY: the vector lives until the operation has failed.
        unsafe { zero.start(&operation).expect("host 1 can be called") };
        let deadline = Instant::now() + WATCHDOG;
        while !one.peers.has_link(0) {
            assert_eq!(zero.poll(), Ok(false));
            assert_eq!(one.is_called(Epoch(1)), Ok(false), "a call alone");
            assert!(Instant::now() < deadline, "the call comes");
        }
        zero.abort(AbortReason::Disagreement);
        let told = Abort { reason: AbortReason::Disagreement, at_fault: EndpointId(0) };
        loop {
            match one.is_called(Epoch(1)) {
                Ok(false) => assert!(Instant::now() < deadline, "the reason comes"),
                heard => break assert_eq!(heard, Err(told)),
            }
        }
    }
}

#[test]
fn a_caller_that_says_later_what_for_can_be_waited_for() {
    let identity = identity(7, false);
    let (mut hosts, addresses) = listening(2, AlgorithmChoice::Auto, identity);
    let zero = &mut hosts[0].links;
    let mut caller = connect_tcp(addresses[0], options(), WATCHDOG).expect("host 0 listens");
    let deadline = Instant::now() + WATCHDOG;
    while zero.callers().count() == 0 {
        assert_eq!(zero.is_called(Epoch(1)), Ok(false), "it has said nothing");
        assert!(Instant::now() < deadline, "the caller is found");
    }
    let epoch = Purpose::Alarm { loss: Epoch(1) }.epoch();
    let alarm = Header { edge: Edge { epoch, ..edge_of(identity, 1) }, message: Message::Join };
    assert_eq!(caller.send(&alarm.encode(), &[]), Ok(Sent::Taken));
    let mut watched: Vec<_> =
        zero.callers().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)).collect();
    let timeout = Timespec { tv_sec: WATCHDOG.as_secs() as i64, tv_nsec: 0 };
    assert_eq!(poll(&mut watched, Some(&timeout)), Ok(1));
    drop(watched);
    assert_eq!(zero.is_called(Epoch(1)), Ok(true));
    assert_eq!(zero.callers().count(), 0, "it is known now");
}
