//! An allreduce of doubles over a replicated group's datagrams beside the exchange over links, in the same plan's order.
//!
//! `cargo bench -p tributary-inter-host --bench replicated [-- [--quick] [--levels 4x2] [--only links|datagrams] [--ring tc|xdp]]`
//!
//! Members are threads of one process on loopback, and share the cores of the machine; the first line says how many there
//! are. Blocks of operations of both methods alternate. A line gives the medians of blocks at member 0, the median of the
//! ratios of neighbouring blocks, and what an operation takes at a member: system calls that send and receive datagrams,
//! frames over links, and times that its thread slept. `--only` runs one method, for a tracer of system
//! calls. With `--ring` a program at loopback puts datagrams into rings, at traffic control or by XDP, which needs root.
//!
//! What is to be expected of k members in one group, per operation and member: links take k-1 system calls to send and at
//! least as many to receive, datagrams one and at least one.
#![allow(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![allow(clippy::unwrap_used, reason = "a benchmark that can't run has nothing better to do")]

use std::net::Ipv4Addr;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use tributary_algorithms::plan::Plan;
use tributary_algorithms::{Algorithm, Collective, CollectiveKind, Order, Radices};
use tributary_inter_host::replicated::{Endpoint, Members, ReplicatedLevels, ReplicatedStats};
use tributary_inter_host::{
    DirectLinks, Identity, InterHost, InterHostOperation, Listener, kernel,
};
use tributary_rings::{Hook, Service, ServiceOptions};
use tributary_shm_collectives::{Blocks, Policy, Waiter};
use tributary_transport::udp::ServiceAddress;
use tributary_wire::{Datatype, Operator};

const SLEEP_MAX: Duration = Duration::from_millis(20);

const LEVELS: [&[u32]; 5] = [&[2], &[4], &[2, 2], &[8], &[4, 2]];
const ELEMENTS: [usize; 4] = [1, 8, 128, 1024];

/// One member, with both methods.
struct Member {
    links: DirectLinks,
    datagrams: ReplicatedLevels,
}

#[derive(Clone, Copy)]
struct Runs {
    policy: Policy,
    algorithm: Algorithm,
    elements: usize,
    /// Blocks of each method, and operations in a block.
    blocks: usize,
    operations: usize,
    with_links: bool,
    with_datagrams: bool,
}

/// What one member has measured: times of an operation by block, and counts of all.
#[derive(Default)]
struct Measured {
    links_ns: Vec<f64>,
    datagrams_ns: Vec<f64>,
    links_sleeps: i64,
    datagrams_sleeps: i64,
    stats: ReplicatedStats,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let value =
        |flag: &str| arguments.iter().skip_while(|it| *it != flag).nth(1).map(String::as_str);
    let (only, named) = (value("--only"), value("--levels"));
    let ring = value("--ring").map(|hook| match hook {
        "tc" => Hook::TrafficControl,
        "xdp" => Hook::Generic,
        other => panic!("--ring is tc or xdp, not {other}"),
    });
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    println!("{cores} cores, shared by all members; times in us");
    println!(
        "{:>8} {:>7} {:>8} {:>9} {:>6}  {:>6} {:>8} {:>6} {:>13} {:>9}",
        "levels",
        "bytes",
        "links",
        "datagrams",
        "ratio",
        "sends",
        "receives",
        "frames",
        "sleeps, links",
        "datagrams"
    );
    let is_named = |levels: &&[u32]| named.is_none_or(|named| named == text(levels));
    let run_all = |service: Option<&ServiceAddress>| {
        for (levels, elements) in LEVELS
            .into_iter()
            .filter(is_named)
            .flat_map(|levels| ELEMENTS.map(|elements| (levels, elements)))
        {
            let hosts: u32 = levels.iter().product();
            let runs = Runs {
                policy: Policy::for_crowd(hosts, cores),
                algorithm: Algorithm::MixedRadix { radices: Radices::new(levels).unwrap() },
                elements,
                blocks: if has("--quick") { 20 } else { 100 },
                operations: 50,
                with_links: only != Some("datagrams"),
                with_datagrams: only != Some("links"),
            };
            report(levels, &runs, measure(levels, runs, service));
        }
    };
    match ring {
        Some(hook) => with_service(hook, |service| run_all(Some(service))),
        None => run_all(None),
    }
}

/// Runs a function while a service is there whose programs sit at this hook.
fn with_service(hook: Hook, body: impl FnOnce(&ServiceAddress)) {
    let address: ServiceAddress = format!("@bench-{}", std::process::id()).parse().unwrap();
    let service = Service::bind(ServiceOptions {
        address: address.clone(),
        hook,
        interfaces: Vec::new(),
        per_user_max: 1,
        socket_users: Vec::new(),
    });
    service.unwrap().serve_while(&|_| (), || body(&address)).unwrap();
}

fn report(levels: &[u32], runs: &Runs, mut measured: Measured) {
    let operations = (runs.blocks * runs.operations) as f64;
    let Measured { links_ns, datagrams_ns, links_sleeps, datagrams_sleeps, stats } = &mut measured;
    let pairs = links_ns.iter().zip(datagrams_ns.iter());
    let mut ratios: Vec<f64> = pairs.map(|(links, datagrams)| links / datagrams).collect();
    let each = |count: u64| count as f64 / operations;
    println!(
        "{:>8} {:>7} {:>8.1} {:>9.1} {:>6.2}  {:>6.2} {:>8.2} {:>6.3} {:>13.2} {:>9.2}",
        text(levels),
        8 * runs.elements,
        median(links_ns) / 1e3,
        median(datagrams_ns) / 1e3,
        median(&mut ratios),
        each(stats.datagrams.send_calls),
        each(stats.datagrams.receive_calls),
        each(stats.said + stats.heard),
        *links_sleeps as f64 / operations,
        *datagrams_sleeps as f64 / operations,
    );
}

fn text(levels: &[u32]) -> String {
    levels.iter().map(u32::to_string).collect::<Vec<_>>().join("x")
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// What member 0 measures.
fn measure(levels: &[u32], runs: Runs, service: Option<&ServiceAddress>) -> Measured {
    let (done, finished) = mpsc::channel();
    for (me, mut member) in members(levels).into_iter().enumerate() {
        if let Some(service) = service {
            member.datagrams.receive_by_ring(service).unwrap();
        }
        let done = done.clone();
        thread::spawn(move || {
            let measured = run(member, me as u32, &runs);
            done.send((me, measured)).unwrap();
        });
    }
    drop(done);
    let all: Vec<_> = finished.into_iter().collect();
    all.into_iter().find_map(|(me, measured)| (me == 0).then_some(measured)).unwrap()
}

fn run(mut member: Member, me: u32, runs: &Runs) -> Measured {
    let mut measured = Measured::default();
    let mut warm = Runs { operations: 20, ..*runs };
    warm.blocks = 1;
    for runs in [&warm, runs] {
        measured = Measured::default();
        let before = member.datagrams.stats();
        for _ in 0..runs.blocks {
            if runs.with_links {
                let (ns, sleeps) = block(&mut member.links, me, runs);
                measured.links_ns.push(ns);
                measured.links_sleeps += sleeps;
            }
            if runs.with_datagrams {
                let (ns, sleeps) = block(&mut member.datagrams, me, runs);
                measured.datagrams_ns.push(ns);
                measured.datagrams_sleeps += sleeps;
            }
        }
        measured.stats = since(before, member.datagrams.stats());
    }
    member.links.leave();
    member.datagrams.leave();
    measured
}

fn since(before: ReplicatedStats, mut now: ReplicatedStats) -> ReplicatedStats {
    now.datagrams.send_calls -= before.datagrams.send_calls;
    now.datagrams.receive_calls -= before.datagrams.receive_calls;
    now.said -= before.said;
    now.heard -= before.heard;
    now
}

/// Time of an operation of a block, and how often the thread has slept.
fn block(method: &mut impl InterHost, me: u32, runs: &Runs) -> (f64, i64) {
    let mut vector: Vec<f64> =
        (0..runs.elements).map(|at| (at as f64 + f64::from(me)).sin()).collect();
    let operation = InterHostOperation {
        collective: Collective::Allreduce,
        called: CollectiveKind::Allreduce,
        root_called: 0,
        operator: Operator::Max,
        datatype: Datatype::F64,
        elements: runs.elements as u64,
        element_bytes: size_of::<f64>(),
        order: Order::Any,
        parts: Blocks::Even,
        kernel: kernel(Operator::Max, Datatype::F64),
        algorithm: runs.algorithm,
        source: std::ptr::null(),
        target: vector.as_mut_ptr().cast(),
    };
    let (begun, sleeps) = (Instant::now(), sleeps_of_thread());
    for _ in 0..runs.operations {
        // SAFETY: the vector is borrowed until the operation is over.
        unsafe { method.start(&operation).unwrap() };
        let mut waiter = Waiter::new(runs.policy);
        while !method.poll().unwrap() {
            method.pause(&mut waiter, SLEEP_MAX);
        }
    }
    let ns = begun.elapsed().as_nanos() as f64 / runs.operations as f64;
    (ns, sleeps_of_thread() - sleeps)
}

/// Times that the thread has slept until something woke it; yields are none.
fn sleeps_of_thread() -> i64 {
    // SAFETY: all-zero bytes are a valid value of this structure of numbers, which the call fills.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a valid one to write to.
    let outcome = unsafe { libc::getrusage(libc::RUSAGE_THREAD, &raw mut usage) };
    assert_eq!(outcome, 0);
    usage.ru_nvcsw
}

fn members(levels: &[u32]) -> Vec<Member> {
    let hosts: u32 = levels.iter().product();
    let plan = Plan::even(hosts, Radices::new(levels).unwrap()).unwrap();
    let local = Ipv4Addr::LOCALHOST.into();
    let identity = |byte| Identity::from_bytes([byte; Identity::BYTES], false);
    let listening =
        || -> Vec<_> { (0..hosts).map(|_| Listener::bind(local, None).unwrap()).collect() };
    let [links, beside] = [listening(), listening()];
    let endpoints: Vec<_> = (0..hosts).map(|_| Endpoint::bind(local, None).unwrap()).collect();
    let addresses = |all: &[(Listener, _)]| all.iter().map(|(_, address)| *address).collect();
    let [link_addresses, beside_addresses]: [Vec<_>; 2] = [addresses(&links), addresses(&beside)];
    let datagram_addresses: Vec<_> = endpoints.iter().map(|(_, address)| *address).collect();
    let sockets = links.into_iter().zip(beside).zip(endpoints);
    let member = |(me, (((link, _), (listener, _)), (endpoint, _)))| Member {
        links: DirectLinks::new(me, identity(1), link, link_addresses.clone()),
        datagrams: ReplicatedLevels::new(
            Members {
                me,
                identity: identity(2),
                listener,
                addresses: beside_addresses.clone(),
                endpoint,
                datagram_addresses: datagram_addresses.clone(),
            },
            &plan,
        )
        .unwrap(),
    };
    (0..).zip(sockets).map(member).collect()
}
