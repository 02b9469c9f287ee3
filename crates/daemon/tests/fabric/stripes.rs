//! Goal: stripes of long vectors, through trees with different roots, give the bits that the order
//! of each tree gives, and a lost tree ends the communicator everywhere. Method: ranks are threads,
//! which act as hosts below two leaves; the order of every rail is written out by hand.

use std::net::Ipv4Addr;
use std::sync::{Arc, Barrier, Mutex};
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_client::report::Ledger;
use tributary_client::{
    Bootstrap, BootstrapError, Collective, CollectiveError, Communicator, Context, Operation,
    Settings, Verdict,
};
use tributary_reduce::oracle;
use tributary_topology::Fabric as Topology;
use tributary_transport::machine;
use tributary_transport::token::Token;
use tributary_wire::control::Status;
use tributary_wire::{Datatype, Operator};

use crate::common::{call, eventually, fabric, status};
use crate::ranks::{ThreadRanks, on_all_ranks};
use crate::recovery::{RunningManager, start_node};

const HOSTS: usize = 4;
const STRIPE_MIN_BYTES: usize = 4096;

/// Settings of hosts that this machine acts as, with these knobs set besides.
fn settings(manager: &str, token_file: &str, knobs: &[(&str, &str)]) -> Settings {
    let of_all = [
        ("TRIBUTARY_MANAGER", manager),
        ("TRIBUTARY_TOKEN_FILE", token_file),
        ("TRIBUTARY_HOSTS", "4"),
        ("TRIBUTARY_STRIPE_MIN", "4096"),
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

/// What a rail's tree makes of the hosts' vectors. The communicator's hosts are below the leaves in
/// the order 0, 1, 0, 1, so that every rail has an order of its own: the spine takes the first leaf's
/// two and adds the second's two; the first leaf takes its own first host, then the second leaf's
/// two (for the second host of all is among them), then its own second; the second leaf the first
/// leaf's two, then its own one by one.
fn in_rails_order(rail: usize, hosts: &[Vec<u8>]) -> Vec<u8> {
    let sum =
        |one: &[u8], other: &[u8]| oracle::accumulate(Operator::Sum, Datatype::F32, &[one, other]);
    let [a, b, c, d] = hosts else { panic!("four hosts") };
    match rail {
        0 => sum(&sum(a, c), &sum(b, d)),
        1 => sum(&sum(a, &sum(b, d)), c),
        2 => sum(&sum(&sum(a, c), b), d),
        _ => panic!("three nodes have three rails"),
    }
}

/// The whole result: a short vector on the first rail, a long one in three parts.
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
    if elements * 4 < STRIPE_MIN_BYTES {
        return in_rails_order(0, &hosts);
    }
    let parts = [0, elements / 3, elements * 2 / 3, elements];
    let part = |rail: usize| {
        let range = parts[rail] * 4..parts[rail + 1] * 4;
        let hosts: Vec<_> = hosts.iter().map(|host| host[range.clone()].to_vec()).collect();
        in_rails_order(rail, &hosts)
    };
    [0, 1, 2].map(part).concat()
}

/// Lengths that three does not divide, and some too short to be cut.
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

/// Bytes of all vectors that are cut, and how many those are.
fn cut_in_all() -> (u64, u64) {
    let long: Vec<_> = LENGTHS.iter().filter(|it| **it * 4 >= STRIPE_MIN_BYTES).collect();
    (long.len() as u64 * 3, long.iter().map(|it| **it as u64 * 4 * 3).sum())
}

/// `ranks` ranks, in the order that puts their hosts below the leaves by turns.
fn stripes_agree_with_the_oracle(ranks: u32, knobs: &'static [(&'static str, &'static str)]) {
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
            let ledger = Ledger::default();
            let tally = ledger.open("world", ranks, rank == 0);
            let never = Arc::new(|| Verdict::GoOn);
            let communicator =
                Communicator::create(&context, &mut reordered, &tally, never).unwrap();
            if rank == 0 {
                let groups = status(&fabric).groups;
                let roots: Vec<_> =
                    groups.iter().map(|it| (it.rail.0, &it.nodes[0].name[..])).collect();
                assert_eq!(roots, [(0, "root"), (1, "leaf0"), (2, "leaf1")]);
            }
            play(&communicator, rank, ranks);
            if rank == 0 {
                let stripes = ledger.report().communicators[0].stripes.clone().unwrap();
                assert_eq!((stripes.asked, stripes.bytes.len()), (4, 3), "{stripes}");
                assert!(stripes.note.contains("rail 3 has the same root"), "{stripes}");
                let (operations, bytes) = cut_in_all();
                assert_eq!((stripes.operations, stripes.bytes.iter().sum()), (operations, bytes));
                assert!(stripes.bytes.iter().all(|it| it.abs_diff(bytes / 3) < bytes / 100));
            }
        }
    });
    eventually("every group has ended", || status(&fabric).groups.is_empty());
}

#[test]
fn stripes_in_segments_agree_with_the_oracle() {
    stripes_agree_with_the_oracle(4, &[("TRIBUTARY_STRIPES", "4")]);
}

#[test]
fn stripes_that_are_streamed_agree_with_the_oracle() {
    let knobs = &[
        ("TRIBUTARY_STRIPES", "4"),
        ("TRIBUTARY_STREAM_MIN", "4096"),
        ("TRIBUTARY_STREAM_CHUNK", "2048"),
    ];
    stripes_agree_with_the_oracle(8, knobs);
}

/// Two spines over two leaves with two hosts each: with this many nodes the second rail's root takes
/// no part in the first.
fn two_spines() -> Topology {
    let mut fabric = Topology::new();
    let spines = ["spine0", "spine1"].map(|name| fabric.add_switch(name).unwrap());
    for leaf in 0..2 {
        let switch = fabric.add_switch(&format!("leaf{leaf}")).unwrap();
        for spine in spines {
            fabric.add_link(spine, switch).unwrap();
        }
        for host in 0..2 {
            let name = format!("{}#{}", machine::name(), 2 * leaf + host);
            let host = fabric.add_host(&name).unwrap();
            fabric.add_link(switch, host).unwrap();
        }
    }
    fabric
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
    let manager = RunningManager::start_on((Ipv4Addr::LOCALHOST, 0).into(), &token, two_spines());
    let address = manager.address;
    let start = |name| start_node(name, address, &token, folder.path());
    let others = ["spine0", "leaf0", "leaf1"].map(start);
    let (lost, lost_thread) = start("spine1");
    let now = || -> Status { call(address, Some(token.reveal()), "GET", "/v1/status", "").json() };
    eventually("four nodes are there", || now().nodes.len() == 4);
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
            let ledger = Ledger::default();
            let tally = ledger.open("world", HOSTS as u32, world.rank() == 0);
            let never = Arc::new(|| Verdict::GoOn);
            let communicator = Communicator::create(&context, &mut world, &tally, never).unwrap();
            let error = reduce_until_it_fails(&communicator, &started);
            // It stays so, also for what would take the rail that lives.
            // SAFETY: a barrier has no buffers.
            let again = unsafe { communicator.run(&Operation::BARRIER) };
            assert_eq!(again, Err(error.clone()));
            errors.lock().unwrap().push(error);
            if world.rank() == 0 {
                assert_eq!(
                    ledger.report().communicators[0].stripes.as_ref().unwrap().bytes.len(),
                    2
                );
            }
        }
    });
    killer.join().unwrap();
    let errors = errors.lock().unwrap();
    assert_eq!(errors.len(), HOSTS);
    for error in errors.iter() {
        assert!(matches!(error, CollectiveError::TreeFailed { .. }), "{error}");
    }
    eventually("both groups are gone", || now().groups.is_empty());
    for (shutdown, thread) in others {
        shutdown.request();
        thread.join().unwrap();
    }
    manager.stop();
}

#[test]
fn a_lost_root_of_the_second_rail_ends_segments_everywhere() {
    a_lost_root_ends_the_communicator(&[("TRIBUTARY_STRIPES", "2")]);
}

#[test]
fn a_lost_root_of_the_second_rail_ends_streams_everywhere() {
    a_lost_root_ends_the_communicator(&[
        ("TRIBUTARY_STRIPES", "2"),
        ("TRIBUTARY_STREAM_MIN", "65536"),
    ]);
}
