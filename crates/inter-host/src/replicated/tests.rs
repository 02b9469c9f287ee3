//! Goal: members of replicated groups have the bits of the exchange over links, whatever happens to datagrams. Method: hosts are
//! threads, sockets are on loopback, datagrams are lost at their senders by a seed; a watchdog ends what hangs.

mod any_input;
mod beside_links;
mod failures;
pub(super) mod faults;
mod losses;
mod multicasts;
#[allow(unsafe_code, reason = "network namespaces of threads")]
mod rings;
mod strangers;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Algorithm, Collective, CollectiveKind, Leaves, Order, Radices};
use tributary_shm_collectives::{Blocks, Policy, Waiter};
use tributary_wire::frame::Abort;
use tributary_wire::{Datatype, Operator};

use super::*;
use crate::direct::{DirectLinks, Identity, Listener};
use crate::kernels::kernel;
use crate::operation::{InterHost, InterHostOperation};

/// Longest a test's hosts may take: they deadlock, or they are done long before.
const WATCHDOG: Duration = Duration::from_secs(60);

/// Another one each time: a host that has died leaves its port to hosts of tests that run beside its own.
fn identity(authenticates: bool) -> Identity {
    static MADE: AtomicU8 = AtomicU8::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    Identity::from_bytes([number; Identity::BYTES], authenticates)
}

fn radices(levels: &[u32]) -> Radices {
    Radices::new(levels).expect("radices")
}

/// Members of groups of these sizes, from the first level on.
fn members(levels: &[u32], identity: Identity) -> Vec<ReplicatedLevels> {
    members_of(levels.iter().product(), levels, identity)
}

/// So many hosts in groups of at most these sizes.
fn members_of(hosts: u32, levels: &[u32], identity: Identity) -> Vec<ReplicatedLevels> {
    members_by(&Plan::even(hosts, radices(levels)).expect("a plan"), identity)
}

/// The hosts of a plan.
fn members_by(plan: &Plan, identity: Identity) -> Vec<ReplicatedLevels> {
    let hosts = plan.hosts();
    let local = Ipv4Addr::LOCALHOST.into();
    let listeners: Vec<_> = (0..hosts).map(|_| Listener::bind(local, None).unwrap()).collect();
    let endpoints: Vec<_> = (0..hosts).map(|_| Endpoint::bind(local, None).unwrap()).collect();
    let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
    let datagram_addresses: Vec<_> = endpoints.iter().map(|(_, address)| *address).collect();
    let member = |(me, ((listener, _), (endpoint, _)))| {
        let (addresses, datagram_addresses) = (addresses.clone(), datagram_addresses.clone());
        let members = Members { me, identity, listener, addresses, endpoint, datagram_addresses };
        ReplicatedLevels::new(members, plan).expect("groups that a machine serves")
    };
    (0..).zip(listeners.into_iter().zip(endpoints)).map(member).collect()
}

/// The same hosts over links, in the same plan's order.
fn over_links(hosts: u32, identity: Identity) -> Vec<DirectLinks> {
    let local = Ipv4Addr::LOCALHOST.into();
    let listeners: Vec<_> = (0..hosts).map(|_| Listener::bind(local, None).unwrap()).collect();
    let addresses: Vec<SocketAddr> = listeners.iter().map(|(_, address)| *address).collect();
    let links = |(me, (listener, _))| DirectLinks::new(me, identity, listener, addresses.clone());
    (0..).zip(listeners).map(links).collect()
}

/// Runs `body` at every host, and gives what they return.
fn on_all<M: Send + 'static, T: Send + 'static>(
    hosts: Vec<M>,
    body: impl Fn(u32, M) -> T + Send + Sync + Clone + 'static,
) -> Vec<T> {
    let (done, finished) = mpsc::channel();
    let count = hosts.len();
    for (host, method) in hosts.into_iter().enumerate() {
        let (done, body) = (done.clone(), body.clone());
        std::thread::spawn(move || {
            done.send((host, body(host as u32, method))).expect("the test waits");
        });
    }
    drop(done);
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

/// An allreduce of a vector of so many elements, in place.
fn allreduce_of(
    vector: &mut [u8],
    operator: Operator,
    datatype: Datatype,
    levels: &[u32],
) -> InterHostOperation {
    InterHostOperation {
        collective: Collective::Allreduce,
        called: CollectiveKind::Allreduce,
        root_called: 0,
        operator,
        datatype,
        element_bytes: datatype.size_bytes(),
        order: Order::Any,
        elements: (vector.len() / datatype.size_bytes()) as u64,
        algorithm: Algorithm::MixedRadix { radices: radices(levels) },
        parts: Blocks::Even,
        kernel: kernel(operator, datatype),
        source: std::ptr::null(),
        target: vector.as_mut_ptr(),
    }
}

fn run(method: &mut impl InterHost, operation: &InterHostOperation) -> Result<(), Abort> {
    // SAFETY: the caller's vector is borrowed until the operation is over or has failed.
    unsafe { method.start(operation)? };
    let mut waiter = Waiter::new(Policy::Sleep);
    while !method.poll()? {
        method.pause(&mut waiter, Duration::from_millis(5));
    }
    Ok(())
}

/// Bytes that are any number of a format: infinities, no numbers, subnormal ones and both zeros among them.
fn hostile(host: u32, round: u32, len_bytes: usize) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64(u64::from(host) << 32 | u64::from(round));
    let mut bytes = vec![0; len_bytes];
    for word in bytes.chunks_mut(2) {
        let kind = random.random_range(0..8);
        let value: u16 = match kind {
            0 => 0x8000,
            1 => 0x7f80,
            2 => 0x7c00,
            3 => 0xfc01,
            4 => random.random_range(0..0x80),
            _ => random.random(),
        };
        word.copy_from_slice(&value.to_le_bytes()[..word.len()]);
    }
    bytes
}

/// Doubles whose sum depends on the order.
fn doubles(host: u32, round: u32, elements: usize) -> Vec<u8> {
    let value = |at: usize| {
        ((at + round as usize) as f64 * 0.37 + f64::from(host)).sin() * 10_f64.powi(host as i32 % 7)
    };
    (0..elements).flat_map(|at| value(at).to_le_bytes()).collect()
}

/// One round at one host, and what it gives: sums of doubles of changing lengths, and barriers.
fn round_of_doubles(
    method: &mut impl InterHost,
    host: u32,
    levels: &[u32],
    round: u32,
) -> Result<Vec<u8>, Abort> {
    let elements = [1, 7, 0, 8, 9, 173, 1, 4000][round as usize % 8];
    let mut vector = doubles(host, round, elements);
    let mut operation = allreduce_of(&mut vector, Operator::Sum, Datatype::F64, levels);
    if elements == 0 {
        let algorithm = operation.algorithm;
        operation = InterHostOperation { algorithm, ..InterHostOperation::BARRIER };
    }
    run(method, &operation)?;
    Ok(vector)
}

/// So many rounds, then this host leaves.
fn rounds_of_doubles(
    method: &mut impl InterHost,
    host: u32,
    levels: &[u32],
    rounds: u32,
) -> Vec<Vec<u8>> {
    let sums = (0..rounds).map(|round| {
        round_of_doubles(method, host, levels, round)
            .unwrap_or_else(|abort| panic!("round {round}, host {host}: {abort:?}"))
    });
    let sums = sums.collect();
    method.leave();
    sums
}

/// What the exchange over links gives.
fn expected(levels: &'static [u32], rounds: u32) -> Vec<Vec<Vec<u8>>> {
    expected_of(levels.iter().product(), levels, rounds)
}

fn expected_of(hosts: u32, levels: &'static [u32], rounds: u32) -> Vec<Vec<Vec<u8>>> {
    on_all(over_links(hosts, identity(false)), move |host, mut links| {
        rounds_of_doubles(&mut links, host, levels, rounds)
    })
}

#[test]
fn doubles_have_the_bits_of_the_exchange_over_links() {
    let rounds = 40;
    for levels in [&[2][..], &[3], &[4], &[7], &[2, 3], &[2, 2, 2], &[4, 4]] {
        let expected = expected(levels, rounds);
        for authenticates in [false, true] {
            let sums = on_all(members(levels, identity(authenticates)), move |host, mut member| {
                rounds_of_doubles(&mut member, host, levels, rounds)
            });
            assert!(sums == expected, "{levels:?}, authenticated: {authenticates}");
        }
    }
}

/// Hosts that the levels do not divide: some stand in for others, at one level or at two.
const UNEVEN: [(u32, &[u32]); 4] = [(5, &[3, 2]), (11, &[4, 3]), (13, &[3, 3, 2]), (17, &[5, 4])];

#[test]
fn uneven_groups_have_the_bits_of_the_exchange_over_links() {
    let rounds = 40;
    for (hosts, levels) in UNEVEN {
        let expected = expected_of(hosts, levels, rounds);
        for authenticates in [false, true] {
            let members = members_of(hosts, levels, identity(authenticates));
            let sums = on_all(members, move |host, mut member| {
                rounds_of_doubles(&mut member, host, levels, rounds)
            });
            assert!(sums == expected, "{hosts}: {levels:?}, authenticated: {authenticates}");
            assert!(sums.iter().all(|host| *host == sums[0]), "{hosts}: {levels:?}: hosts differ");
        }
    }
}

/// The leaves of hosts that were dealt to them, and the levels that divide them leaf by leaf: equal leaves, and unequal ones.
const DEALT: [(&[u32], &[u32]); 3] = [
    (&[0, 1, 0, 1, 0, 1, 0, 1], &[4, 2]),
    (&[0, 1, 2, 0, 1, 2, 0, 1], &[3, 3]),
    (&[0, 1, 1, 0, 0, 1, 1, 1, 0, 1, 0], &[3, 2, 2]),
];

#[test]
fn hosts_dealt_to_leaves_have_the_bits_of_the_exchange_over_links() {
    let rounds = 40;
    for (leaf_of_host, levels) in DEALT {
        let leaves = Leaves::new(leaf_of_host);
        let plan = leaves.groups(radices(levels)).expect("a plan");
        let links = over_links(leaves.hosts(), identity(false));
        let by_leaf = links.into_iter().map(|links| links.by_leaf(leaves.clone())).collect();
        let expected = on_all(by_leaf, move |host, mut links: DirectLinks| {
            rounds_of_doubles(&mut links, host, levels, rounds)
        });
        let sums = on_all(members_by(&plan, identity(false)), move |host, mut member| {
            rounds_of_doubles(&mut member, host, levels, rounds)
        });
        assert!(sums == expected, "{leaf_of_host:?}");
        assert!(sums.iter().all(|host| *host == sums[0]), "{leaf_of_host:?}: hosts differ");
        let numbered = expected_of(leaves.hosts(), levels, rounds);
        assert!(sums != numbered, "{leaf_of_host:?}: the order of leaves is that of numbers");
    }
}

#[test]
fn hostile_numbers_of_every_format_have_the_bits_of_the_exchange_over_links() {
    fn sums(method: &mut impl InterHost, host: u32, levels: &[u32]) -> Vec<Vec<u8>> {
        let operators = [Operator::Sum, Operator::Product, Operator::Min, Operator::Max];
        let datatypes = [Datatype::F16, Datatype::Bf16, Datatype::F32, Datatype::F64];
        let mut round = 0;
        let mut sums = Vec::new();
        for datatype in datatypes {
            for operator in operators {
                for elements in [1, 5, 300] {
                    let len_bytes = elements * datatype.size_bytes();
                    let mut vector = hostile(host, round, len_bytes);
                    round += 1;
                    run(method, &allreduce_of(&mut vector, operator, datatype, levels)).unwrap();
                    sums.push(vector);
                }
            }
        }
        method.leave();
        sums
    }
    for levels in [&[2][..], &[5], &[3, 2], &[2, 2, 2]] {
        let hosts = levels.iter().product();
        let expected = on_all(over_links(hosts, identity(false)), move |host, mut links| {
            sums(&mut links, host, levels)
        });
        let got = on_all(members(levels, identity(false)), move |host, mut member| {
            sums(&mut member, host, levels)
        });
        assert!(got == expected, "{levels:?}");
        assert!(got.iter().all(|host| *host == got[0]), "{levels:?}: hosts differ");
    }
}

/// The result goes elsewhere, and the longest contribution is a datagram of many fragments.
#[test]
fn a_contribution_of_the_longest_length_stays_where_it_is() {
    let levels = &[3][..];
    let elements = CONTRIBUTION_BYTES_MAX / 8;
    let sums = on_all(members(levels, identity(true)), move |host, mut member| {
        let source = doubles(host, 0, elements);
        let mut target = vec![0; source.len()];
        let mut operation = allreduce_of(&mut target, Operator::Sum, Datatype::F64, levels);
        assert!(ReplicatedLevels::carries(&operation));
        operation.source = source.as_ptr();
        for _ in 0..3 {
            run(&mut member, &operation).unwrap();
        }
        assert_eq!(source, doubles(host, 0, elements));
        let longer = InterHostOperation { elements: elements as u64 + 1, ..operation };
        assert!(!ReplicatedLevels::carries(&longer));
        let reduce = InterHostOperation { collective: Collective::Reduce { root: 0 }, ..operation };
        assert!(!ReplicatedLevels::carries(&reduce));
        member.leave();
        target
    });
    let value = |host, at: usize| {
        f64::from_le_bytes(doubles(host, 0, elements)[8 * at..][..8].try_into().unwrap())
    };
    let last = elements - 1;
    let sum = (value(0, last) + value(1, last)) + value(2, last);
    assert!(sums.iter().all(|it| *it == sums[0]));
    assert_eq!(sums[0][8 * last..], sum.to_le_bytes());
}
