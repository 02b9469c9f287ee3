//! Goal: a program does not notice that aggregation nodes die under it, but by a pause. Method: ranks are
//! threads of this process, which act as hosts; aggregators are processes that are killed and started anew while the
//! ranks check every result.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

#[path = "../../client/tests/ranks/mod.rs"]
mod ranks;
mod support;

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ranks::{ThreadRanks, on_all_ranks};
use rustix::process::Signal;
use support::Daemons;
use tributary_client::report::{CounterRegistry, Failovers};
use tributary_client::{
    Bootstrap, Collective, Communicator, Context, Operation, Settings, Verdict,
};
use tributary_wire::{Datatype, Operator};

const RANKS: u32 = 4;
const LENGTHS: [usize; 6] = [1, 8, 200, 3000, 20_000, 150_000];

/// A generator of Lehmer's kind, the same at all ranks.
struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0 * 48_271 % 0x7FFF_FFFF;
        self.0 % end
    }
}

fn value(step: u64, rank: u32, at: usize) -> i64 {
    let mixed = step << 40 ^ u64::from(rank) << 32 ^ at as u64;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64
}

fn sum(step: u64, at: usize) -> i64 {
    (0..RANKS).fold(0, |sum: i64, rank| sum.wrapping_add(value(step, rank, at)))
}

/// One verified operation of one rank. Everything but `rank` is the same at all ranks.
fn check_operation(communicator: &Communicator, rank: u32, step: u64, random: &mut Random) {
    let root = random.below(u64::from(RANKS)) as u32;
    let elements = LENGTHS[random.below(LENGTHS.len() as u64) as usize];
    let (in_place, blocking) = (random.below(2) == 0, random.below(3) > 0);
    let collective = match random.below(8) {
        0 => Collective::Barrier,
        1 => Collective::Broadcast { root },
        2 | 3 => Collective::Reduce { root },
        _ => Collective::Allreduce,
    };
    let source: Vec<i64> = (0..elements).map(|at| value(step, rank, at)).collect();
    let mut target = source.clone();
    let starts_in_target = in_place || matches!(collective, Collective::Broadcast { .. });
    let operation = Operation {
        collective,
        datatype: Datatype::I64,
        operator: match collective {
            Collective::Broadcast { .. } => Operator::Broadcast,
            _ => Operator::Sum,
        },
        elements: elements as u64,
        source: if starts_in_target { target.as_ptr() } else { source.as_ptr() }.cast(),
        target: target.as_mut_ptr().cast(),
        ..Operation::BARRIER
    };
    let operation = match collective {
        Collective::Barrier => Operation::BARRIER,
        _ => operation,
    };
    // SAFETY: both vectors live and stay as they are until the operation is over.
    let outcome = unsafe {
        if blocking {
            communicator.run(&operation)
        } else {
            communicator.start(operation).and_then(|request| request.wait())
        }
    };
    outcome.unwrap_or_else(|error| panic!("rank {rank}, step {step}, {collective:?}: {error}"));
    let expected = |at: usize| match collective {
        Collective::Allreduce => Some(sum(step, at)),
        Collective::Reduce { root } if root == rank => Some(sum(step, at)),
        Collective::Broadcast { root } => Some(value(step, root, at)),
        _ => None,
    };
    for (at, got) in target.iter().enumerate() {
        let is_right = expected(at).is_none_or(|expected| expected == *got);
        assert!(is_right, "rank {rank}, step {step}, {collective:?} of {elements}, at {at}");
    }
    // What the program does with its buffers must not matter to anybody.
    target.fill(-1);
}

fn settings(daemons: &Daemons, more: &'static [(&'static str, &'static str)]) -> Settings {
    let (manager, token) = (daemons.manager.address.clone(), daemons.token());
    Settings::from_environment(|name| {
        if let Some((_, value)) = more.iter().find(|(known, _)| *known == name) {
            return Some((*value).to_owned());
        }
        match name {
            "TRIBUTARY_HOSTS" => Some(RANKS.to_string()),
            "TRIBUTARY_BETWEEN_HOSTS" => Some("tree".to_owned()),
            "TRIBUTARY_HOST_ADDRESS" => Some("127.0.0.1".to_owned()),
            "TRIBUTARY_WAIT" => Some("sleep".to_owned()),
            "TRIBUTARY_MANAGER" => Some(manager.clone()),
            "TRIBUTARY_TOKEN_FILE" => Some(token.display().to_string()),
            _ => None,
        }
    })
    .expect("the settings are valid")
}

/// Longest that ranks work while `disturb` does what it does.
const TIME_MAX: Duration = Duration::from_secs(60);
/// How often the tree is lost meanwhile, at least, and a tree is had again.
const LOSSES: u64 = 4;

/// Ranks run verified operations, of which some come late, while `disturb` is called again and again, with what
/// they have seen so far at hand.
fn survive(
    daemons: &mut Daemons,
    more: &'static [(&'static str, &'static str)],
    is_enough: fn(Failovers) -> bool,
    mut disturb: impl FnMut(&mut Daemons, &mut Random, &dyn Fn() -> Failovers),
) {
    let settings = settings(daemons, more);
    let registry = Arc::new(CounterRegistry::default());
    let last = Arc::new(AtomicU64::new(u64::MAX));
    let (is_over, is_set_up) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let slowest = Arc::new(Mutex::new(Duration::ZERO));
    let ranks = {
        let (registry, last) = (Arc::clone(&registry), Arc::clone(&last));
        let (is_over, slowest) = (Arc::clone(&is_over), Arc::clone(&slowest));
        let is_set_up = Arc::clone(&is_set_up);
        std::thread::spawn(move || {
            on_all_ranks(RANKS, move |mut ranks: ThreadRanks| {
                let context = Arc::new(Context::open(&mut ranks, settings.clone()).unwrap());
                let counters = registry.open("world", RANKS, ranks.rank() == 0);
                let hook = Arc::new(|| Verdict::GoOn);
                let communicator =
                    Communicator::create(&context, &mut ranks, &counters, hook).unwrap();
                is_set_up.store(true, Ordering::Relaxed);
                let (rank, mut random) = (ranks.rank(), Random(4711));
                let mut own = Random(1 + u64::from(rank));
                for step in 0.. {
                    // Rank 0 says which operation is the last, some before it comes there itself.
                    if rank == 0 && is_over.load(Ordering::Relaxed) {
                        let _ = last.compare_exchange(
                            u64::MAX,
                            step + 8,
                            Ordering::SeqCst,
                            Ordering::SeqCst,
                        );
                    }
                    if step > last.load(Ordering::SeqCst) {
                        break;
                    }
                    let begun = Instant::now();
                    check_operation(&communicator, rank, step, &mut random);
                    let mut slowest = slowest.lock().unwrap();
                    *slowest = begun.elapsed().max(*slowest);
                    drop(slowest);
                    // Now and then a rank computes, while others may wait for what only it has.
                    if own.below(20) == 0 {
                        std::thread::sleep(Duration::from_millis(own.below(30)));
                    }
                }
            });
        })
    };
    // A set-up that loses an aggregator is refused, as it would be on any other fabric.
    support::await_that("the ranks are set up", || is_set_up.load(Ordering::Relaxed).then_some(()));
    let mut random = Random(12);
    let begun = Instant::now();
    let failovers = || registry.report().communicators.first().map(|it| it.failovers);
    let failovers = || failovers().unwrap_or_default();
    while begun.elapsed() < TIME_MAX && !ranks.is_finished() && !is_enough(failovers()) {
        std::thread::sleep(Duration::from_millis(20 + random.below(200)));
        disturb(daemons, &mut random, &failovers);
    }
    is_over.store(true, Ordering::Relaxed);
    ranks.join().expect("no rank saw an error or a wrong result");
    let slowest = slowest.lock().unwrap();
    let seen = failovers();
    assert!(is_enough(seen), "{seen:?} in {TIME_MAX:?}, slowest operation {slowest:?}");
}

/// Trees were lost, and others had again, several times.
fn has_come_back(seen: Failovers) -> bool {
    seen.lost >= LOSSES && seen.regained >= LOSSES
}

/// Kills an aggregator, and starts it again under its name.
fn kill_nodes(more: &'static [(&'static str, &'static str)]) {
    let mut names = vec!["a", "b", "c"];
    let mut daemons = Daemons::start(&names);
    survive(&mut daemons, more, has_come_back, |daemons, random, _| {
        let victim = random.below(names.len() as u64) as usize;
        let name = names.swap_remove(victim);
        daemons.nodes.swap_remove(victim).kill();
        std::thread::sleep(Duration::from_millis(random.below(100)));
        daemons.add(name);
        names.push(name);
    });
    daemons.await_idle();
}

#[test]
fn nodes_on_shared_memory_die_under_a_program_that_sees_nothing_but_pauses() {
    kill_nodes(&[]);
}

#[test]
fn nodes_on_datagrams_die_under_streams_too() {
    kill_nodes(&[("TRIBUTARY_TRANSPORT", "tcp"), ("TRIBUTARY_STREAM_MIN", "100000")]);
}

#[test]
fn nodes_die_under_hosts_of_several_ranks() {
    kill_nodes(&[
        ("TRIBUTARY_HOSTS", "2"),
        ("TRIBUTARY_TRANSPORT", "tcp"),
        ("TRIBUTARY_CHANNEL", "tcp"),
        ("TRIBUTARY_STREAM_MIN", "100000"),
    ]);
}

#[test]
fn nodes_that_are_stopped_are_done_without() {
    let nodes = ["a", "b"];
    let mut daemons = Daemons::start(&nodes);
    let is_enough = |seen: Failovers| seen.lost >= 2 && seen.regained >= 2;
    survive(&mut daemons, &[], is_enough, |daemons, random, _| {
        let victim = daemons.nodes[random.below(nodes.len() as u64) as usize].id();
        support::signal(victim, Signal::STOP);
        std::thread::sleep(Duration::from_secs(4));
        support::signal(victim, Signal::CONT);
        daemons.await_nodes(nodes.len());
    });
    daemons.await_idle();
}

#[test]
fn every_node_is_upgraded_under_a_job() {
    let mut daemons = Daemons::start(&["a", "b", "c"]);
    survive(&mut daemons, &[], has_come_back, |daemons, _, _| {
        let node = daemons.nodes.remove(0);
        let drained = support::run(daemons.tributary().args(["drain", &node.name]));
        assert!(drained.status.success(), "{}", drained.stderr);
        support::await_that("the node has nothing to do", || {
            let status = daemons.status();
            let its = |it: &&serde_json::Value| it["registration"]["name"] == node.name.as_str();
            let node = support::list(&status, "nodes").iter().find(its).cloned().unwrap();
            (node["is_draining"] == true && node["osos_used"] == 0).then_some(())
        });
        let name = node.name.clone();
        assert!(node.stop().success());
        daemons.add(&name);
        daemons.await_nodes(3);
    });
    daemons.await_idle();
    let unknown = support::run(daemons.tributary().args(["drain", "nobody"]));
    assert!(unknown.stderr.contains("no living aggregation node is called `nobody`"));
}

#[test]
fn all_nodes_may_be_gone_for_a_while() {
    let mut daemons = Daemons::start(&["a", "b"]);
    survive(&mut daemons, &[], has_come_back, |daemons, _, _| {
        daemons.nodes.iter_mut().for_each(support::Daemon::kill);
        daemons.nodes.clear();
        std::thread::sleep(Duration::from_millis(300));
        daemons.add("a");
        daemons.add("b");
        daemons.await_nodes(2);
        // Until the communicator is back, there is nothing to lose.
        std::thread::sleep(Duration::from_millis(300));
    });
    daemons.await_idle();
}

#[test]
fn managers_come_and_go_and_trees_stay() {
    let mut daemons = Daemons::start(&["a", "b"]);
    let mut managers = 1;
    let is_enough = |seen: Failovers| seen.lost >= 2 && seen.regained >= 2;
    survive(&mut daemons, &[], is_enough, |daemons, random, seen| {
        let before = trees(daemons);
        daemons.replace_manager(Duration::from_millis(random.below(500)));
        daemons.await_nodes(2);
        assert_eq!(trees(daemons), before, "the trees are the same");
        managers += 1;
        if managers % 3 == 0 {
            // The job, which this manager has not admitted, is granted another tree.
            let mut node = daemons.nodes.remove(0);
            let had_tree = trees(daemons).iter().any(|it| it["nodes"][0]["name"] == *node.name);
            let losses = seen().lost + u64::from(had_tree);
            node.kill();
            daemons.add(&node.name);
            daemons.await_nodes(2);
            support::await_that("the job has a tree that it uses", || {
                let is_back = |seen: Failovers| seen.lost >= losses && seen.lost == seen.regained;
                (is_back(seen()) && trees(daemons).len() == 1).then_some(())
            });
        }
    });
    daemons.await_idle();
}

/// The groups, without what changes while they stay: whom they wait for.
fn trees(daemons: &Daemons) -> Vec<serde_json::Value> {
    let mut groups = support::list(&daemons.status(), "groups").to_vec();
    groups.iter_mut().for_each(|group| drop(group.as_object_mut().unwrap().remove("waiting")));
    groups
}

#[test]
fn without_a_manager_operations_go_on_without_a_tree() {
    const ENOUGH: u64 = 50;
    let mut daemons = Daemons::start(&["a"]);
    let is_enough = |seen: Failovers| seen.lost == 1 && seen.substitutes >= ENOUGH;
    let mut is_over = false;
    survive(&mut daemons, &[], is_enough, |daemons, _, _| {
        if !std::mem::replace(&mut is_over, true) {
            daemons.manager.kill();
            daemons.nodes[0].kill();
        }
    });
}
