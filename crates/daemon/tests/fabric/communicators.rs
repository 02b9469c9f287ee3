//! Goal: communicators whose hosts meet in a real tree get the bits that the tree's order gives, and
//! a lost root ends them everywhere. Method: ranks are threads, which act as hosts below two leaves;
//! the order of the tree is written out by hand.

use std::net::Ipv4Addr;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_client::report::CounterRegistry;
use tributary_client::{
    Bootstrap, BootstrapError, Collective, CollectiveError, Communicator, Context, Operation,
    Settings, Verdict,
};
use tributary_reduce::oracle;
use tributary_transport::token::Token;
use tributary_wire::control::Status;
use tributary_wire::{Datatype, Operator};

use crate::common::{call, eventually, fabric, status};
use crate::ranks::{ThreadRanks, on_all_ranks};
use crate::recovery::{RunningManager, start_node};

const HOSTS: usize = 4;

/// Settings of hosts that this machine acts as, with these knobs set besides.
fn settings(manager: &str, token_file: &str, knobs: &[(&str, &str)]) -> Settings {
    let of_all = [
        ("TRIBUTARY_MANAGER", manager),
        ("TRIBUTARY_TOKEN_FILE", token_file),
        ("TRIBUTARY_HOSTS", "4"),
        ("TRIBUTARY_PAYLOAD_MAX", "1000"),
    ];
    let value = |name: &str| {
        let mut all = knobs.iter().chain(&of_all);
        all.find(|(knob, _)| *knob == name).map(|(_, value)| (*value).to_owned())
    };
    Settings::from_environment(value).unwrap()
}

/// The same ranks in another order: the communicator's rank `i` is the world's rank `order[i]`.
struct Reordered {
    world: ThreadRanks,
    order: Vec<u32>,
}

impl Bootstrap for Reordered {
    fn rank(&self) -> u32 {
        self.order.iter().position(|rank| *rank == self.world.rank()).unwrap() as u32
    }

    fn size(&self) -> u32 {
        self.world.size()
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let mut gathered = vec![0; all.len()];
        self.world.allgather(mine, &mut gathered)?;
        for (place, rank) in all.chunks_exact_mut(mine.len().max(1)).zip(&self.order) {
            place.copy_from_slice(&gathered[*rank as usize * mine.len()..][..mine.len()]);
        }
        Ok(())
    }
}

/// Floats of very different sizes: their sum shows the order in which it was taken.
fn contribution(step: usize, rank: u32, elements: usize) -> Vec<u8> {
    let mut random = Pcg64Mcg::seed_from_u64((step as u64) << 32 | u64::from(rank));
    let mut value = || (random.random::<f32>() - 0.5) * f32::exp2(random.random_range(-30.0..30.0));
    (0..elements).flat_map(|_| value().to_le_bytes()).collect()
}

/// What the tree makes of the hosts' vectors. The communicator's hosts are below the leaves in the
/// order 0, 1, 0, 1, so the root adds the first leaf's two and the second leaf's two.
fn in_tree_order(hosts: &[Vec<u8>]) -> Vec<u8> {
    let sum =
        |one: &[u8], other: &[u8]| oracle::accumulate(Operator::Sum, Datatype::F32, &[one, other]);
    let [a, b, c, d] = hosts else { panic!("four hosts") };
    sum(&sum(a, c), &sum(b, d))
}

/// The result, from each host's own sum in the order of its ranks.
fn expected(step: usize, elements: usize, ranks: u32) -> Vec<u8> {
    let per_host = ranks as usize / HOSTS;
    let of_rank = |rank: usize| contribution(step, rank as u32, elements);
    let hosts: Vec<Vec<u8>> = (0..HOSTS)
        .map(|host| {
            let own: Vec<_> = (0..per_host).map(|local| of_rank(host * per_host + local)).collect();
            let own: Vec<&[u8]> = own.iter().map(Vec::as_slice).collect();
            oracle::accumulate(Operator::Sum, Datatype::F32, &own)
        })
        .collect();
    in_tree_order(&hosts)
}

/// Lengths below and above the shortest stream; most fill no whole number of segments or chunks.
const LENGTHS: [usize; 8] = [1, 7, 1023, 1024, 1025, 3001, 10_007, 40_001];

fn play(communicator: &Communicator, rank: u32, ranks: u32) {
    let steps =
        LENGTHS.iter().flat_map(|elements| [None, Some(0), Some(1)].map(|at| (*elements, at)));
    for (step, (elements, root)) in steps.enumerate() {
        // A root on each host in turn, at one of its ranks.
        let root = root.map(|at| (step as u32 + at) % ranks);
        let source = contribution(step, rank, elements);
        let mut target = vec![0xA5; source.len()];
        let operation = Operation {
            collective: root.map_or(Collective::Allreduce, |root| Collective::Reduce { root }),
            datatype: Datatype::F32,
            operator: Operator::Sum,
            elements: elements as u64,
            source: source.as_ptr(),
            target: target.as_mut_ptr(),
            ..Operation::BARRIER
        };
        // SAFETY: both vectors live until the operation is over, and nobody else has them.
        unsafe {
            if step % 2 == 0 {
                communicator.run(&operation).unwrap();
            } else {
                communicator.start(operation).unwrap().wait().unwrap();
            }
        }
        if root.is_none_or(|root| root == rank) {
            let expected = expected(step, elements, ranks);
            assert!(target == expected, "{elements} elements to {root:?} at rank {rank}");
        }
    }
}

/// `ranks` ranks, in the order that puts their hosts below the leaves by turns.
fn results_have_the_trees_order(ranks: u32, knobs: &'static [(&'static str, &'static str)]) {
    let fabric = Arc::new(fabric(HOSTS as u32, 2));
    on_all_ranks(ranks, {
        let fabric = Arc::clone(&fabric);
        move |mut world| {
            let manager = fabric.manager().to_string();
            let settings = settings(&manager, fabric.token_file().to_str().unwrap(), knobs);
            let context = Arc::new(Context::open(&mut world, settings).unwrap());
            let per_host = ranks / HOSTS as u32;
            let of_host = |host: u32| (0..per_host).map(move |local| host * per_host + local);
            let order: Vec<u32> = [0, 2, 1, 3].into_iter().flat_map(of_host).collect();
            let mut reordered = Reordered { world, order };
            let rank = reordered.rank();
            let registry = CounterRegistry::default();
            let counters = registry.open("world", ranks, rank == 0);
            let never = Arc::new(|| Verdict::GoOn);
            let communicator =
                Communicator::create(&context, &mut reordered, &counters, never).unwrap();
            play(&communicator, rank, ranks);
        }
    });
    eventually("every group has ended", || status(&fabric).groups.is_empty());
}

#[test]
fn segments_have_the_trees_order() {
    results_have_the_trees_order(4, &[]);
}

#[test]
fn streams_have_the_trees_order() {
    let knobs = &[("TRIBUTARY_STREAM_MIN", "4096"), ("TRIBUTARY_STREAM_CHUNK", "2048")];
    results_have_the_trees_order(8, knobs);
}

/// Long and short allreduces by turns, until one fails.
fn reduce_until_it_fails(communicator: &Communicator, started: &Barrier) -> CollectiveError {
    for round in 0_u64.. {
        if round == 3 {
            started.wait();
        }
        for elements in [1 << 18, 1] {
            let source = vec![round; elements];
            let mut target = vec![0_u64; elements];
            let operation = Operation {
                collective: Collective::Allreduce,
                datatype: Datatype::U64,
                operator: Operator::Sum,
                elements: elements as u64,
                source: source.as_ptr().cast(),
                target: target.as_mut_ptr().cast(),
                ..Operation::BARRIER
            };
            // SAFETY: both vectors live until the operation is over, and nobody else has them.
            if let Err(error) = unsafe { communicator.run(&operation) } {
                return error;
            }
            assert!(target.iter().all(|sum| *sum == round * HOSTS as u64), "round {round}");
        }
    }
    unreachable!("rounds end with an error")
}

fn a_lost_root_ends_the_communicator(knobs: &'static [(&'static str, &'static str)]) {
    let folder = tempfile::tempdir().unwrap();
    let token_file = folder.path().join("token");
    let token = Token::create(&token_file).unwrap();
    let manager = RunningManager::start((Ipv4Addr::LOCALHOST, 0).into(), &token);
    let address = manager.address;
    let start = |name| start_node(name, address, &token, folder.path());
    // Without a topology file the first aggregator by name is the root, and the hosts are dealt out below.
    let others = ["b", "c"].map(start);
    let (lost, lost_thread) = start("a");
    let now = || -> Status { call(address, Some(token.reveal()), "GET", "/v1/status", "").json() };
    eventually("three nodes are there", || now().nodes.len() == 3);
    let started = Arc::new(Barrier::new(HOSTS + 1));
    let killer = std::thread::spawn({
        let started = Arc::clone(&started);
        move || {
            started.wait();
            std::thread::sleep(Duration::from_millis(20));
            lost.request();
            lost_thread.join().unwrap();
        }
    });
    let errors = Arc::new(Mutex::new(Vec::new()));
    on_all_ranks(HOSTS as u32, {
        let errors = Arc::clone(&errors);
        move |mut world| {
            let settings = settings(&address.to_string(), token_file.to_str().unwrap(), knobs);
            let context = Arc::new(Context::open(&mut world, settings).unwrap());
            let registry = CounterRegistry::default();
            let counters = registry.open("world", HOSTS as u32, world.rank() == 0);
            let never = Arc::new(|| Verdict::GoOn);
            let communicator =
                Communicator::create(&context, &mut world, &counters, never).unwrap();
            let error = reduce_until_it_fails(&communicator, &started);
            // It stays so.
            // SAFETY: a barrier has no buffers.
            let again = unsafe { communicator.run(&Operation::BARRIER) };
            assert_eq!(again, Err(error.clone()));
            errors.lock().unwrap().push(error);
        }
    });
    killer.join().unwrap();
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), HOSTS);
    for error in errors.iter() {
        assert!(matches!(error, CollectiveError::TreeFailed { .. }), "{error}");
    }
    eventually("the group is gone", || now().groups.is_empty());
    for (shutdown, thread) in others {
        shutdown.request();
        thread.join().unwrap();
    }
    manager.stop();
}

#[test]
fn without_failover_a_lost_root_ends_segments_everywhere() {
    a_lost_root_ends_the_communicator(&[("TRIBUTARY_FAILOVER", "off")]);
}

#[test]
fn without_failover_a_lost_root_ends_streams_everywhere() {
    a_lost_root_ends_the_communicator(&[
        ("TRIBUTARY_FAILOVER", "off"),
        ("TRIBUTARY_STREAM_MIN", "65536"),
    ]);
}
