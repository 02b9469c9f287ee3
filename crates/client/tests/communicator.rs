//! Goal: whatever the mix of collectives, blocking or not, every rank gets what the oracle gets.
//! Method: ranks are threads of this process, which find each other through a barrier and a shared
//! table; sequences of operations come from a seed.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod ranks;

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use ranks::{ThreadRanks, on_all_ranks};
use tributary_client::report::{CounterRegistry, PathKind};
use tributary_client::{
    Blocks, Bootstrap, BootstrapError, Collective, CollectiveError, CollectiveKind, Communicator,
    Context, FabricChoice, Operation, Request, Settings, Verdict,
};
use tributary_settings::{LongestBytes, OffloadMax};
use tributary_wire::{Datatype, Operator};

fn settings() -> Settings {
    Settings::from_environment(|_| None).unwrap()
}

fn communicator(ranks: &mut ThreadRanks, registry: &CounterRegistry, label: &str) -> Communicator {
    communicator_with(ranks, registry, label, settings())
}

fn communicator_with(
    ranks: &mut ThreadRanks,
    registry: &CounterRegistry,
    label: &str,
    settings: Settings,
) -> Communicator {
    let context = Arc::new(Context::open(ranks, settings).unwrap());
    let counters = registry.open(label, ranks.size(), ranks.rank() == 0);
    Communicator::create(&context, ranks, &counters, Arc::new(|| Verdict::GoOn)).unwrap()
}

/// Ranks of one machine that act as `hosts` hosts, joined by host algorithms.
fn direct_settings(hosts: u32, algorithm: &str, leaders: u32, parts: u32) -> Settings {
    let (hosts, algorithm) = (hosts.to_string(), algorithm.to_owned());
    let (leaders, parts) = (leaders.to_string(), parts.to_string());
    Settings::from_environment(|name| match name {
        "TRIBUTARY_HOSTS" => Some(hosts.clone()),
        "TRIBUTARY_BETWEEN_HOSTS" => Some("direct".to_owned()),
        "TRIBUTARY_DIRECT_ALGORITHM" => Some(algorithm.clone()),
        "TRIBUTARY_LEADERS" => Some(leaders.clone()),
        "TRIBUTARY_SUB_PARTITIONS" => Some(parts.clone()),
        "TRIBUTARY_HOST_ADDRESS" => Some("127.0.0.1".to_owned()),
        _ => None,
    })
    .unwrap()
}

/// One step of a script: the same at all ranks.
#[derive(Clone, Copy, Debug)]
struct Step {
    collective: Collective,
    elements: usize,
    /// Where blocks of any length come from, in a reduce-scatter; none if they are even.
    dealt_by: Option<u64>,
    in_place: bool,
    blocking: bool,
}

fn script(seed: u64, ranks: u32, steps: usize) -> Vec<Step> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let lengths = [0, 1, 2, 7, 8, 63, 1000, 1039, 20_000, 70_001];
    (0..steps)
        .map(|_| {
            let root = random.random_range(0..ranks);
            let collective = match random.random_range(0..8) {
                0 => Collective::Allreduce,
                1 => Collective::Reduce { root },
                2 => Collective::Broadcast { root },
                3 => Collective::Barrier,
                4 => Collective::Allgather,
                5 => Collective::ReduceScatter,
                _ if random.random() => Collective::Scan,
                _ => Collective::Exscan,
            };
            let elements = lengths[random.random_range(0..lengths.len())];
            let dealt_by = random.random::<bool>().then(|| random.random());
            let is_even = collective == Collective::ReduceScatter && dealt_by.is_none();
            Step {
                collective,
                elements: if is_even { elements - elements % ranks as usize } else { elements },
                dealt_by,
                in_place: random.random(),
                blocking: random.random_range(0..3) > 0,
            }
        })
        .collect()
}

/// Where the blocks of a reduce-scatter begin, and the last one ends.
fn cuts(what: &Step, ranks: u32) -> Vec<u64> {
    let (ranks, elements) = (ranks as usize, what.elements as u64);
    let mut cuts: Vec<u64> = (0..=ranks as u64).map(|at| at * elements / ranks as u64).collect();
    if let Some(seed) = what.dealt_by {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        cuts[1..ranks].fill_with(|| random.random_range(0..=elements));
        cuts.sort_unstable();
    }
    cuts
}

fn contribution(step: usize, rank: u32, element: usize) -> i64 {
    let mixed = (step as u64) << 40 | u64::from(rank) << 32 | element as u64;
    mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) as i64
}

fn expected(step: usize, what: &Step, rank: u32, ranks: u32) -> Option<Vec<i64>> {
    let sum_up_to = |end: u32| {
        let total = |element| {
            (0..end).fold(0, |sum: i64, rank| sum.wrapping_add(contribution(step, rank, element)))
        };
        (0..what.elements).map(total).collect::<Vec<_>>()
    };
    let sum = || sum_up_to(ranks);
    let of_rank = |rank| (0..what.elements).map(move |at| contribution(step, rank, at));
    match what.collective {
        Collective::Allreduce => Some(sum()),
        Collective::Reduce { root } => (rank == root).then(sum),
        Collective::Broadcast { root } => Some(of_rank(root).collect()),
        Collective::Barrier => None,
        Collective::Allgather => Some((0..ranks).flat_map(of_rank).collect()),
        Collective::ReduceScatter => {
            let cuts = cuts(what, ranks);
            let cut = |at: u32| cuts[at as usize] as usize;
            Some(sum()[cut(rank)..cut(rank + 1)].to_vec())
        }
        Collective::Scan => Some(sum_up_to(rank + 1)),
        Collective::Exscan => (rank > 0).then(|| sum_up_to(rank)),
    }
}

/// An operation under way, its buffers, and what must be in them.
struct Pending {
    request: Option<Request>,
    source: Vec<i64>,
    target: Vec<i64>,
    /// In use as long as the buffers.
    _cuts: Vec<u64>,
    expected: Option<Vec<i64>>,
    step: usize,
}

impl Pending {
    fn check(self, what: &Step, rank: u32) {
        if let Some(request) = &self.request {
            request.wait().unwrap();
        }
        let original: Vec<i64> =
            (0..self.source.len()).map(|at| contribution(self.step, rank, at)).collect();
        assert!(self.source == original, "{what:?} changed its source");
        if let Some(expected) = self.expected {
            // In place, what lies behind a rank's block is nobody's.
            let is_right = self.target.starts_with(&expected);
            assert!(is_right, "step {} {what:?} at rank {rank}", self.step);
        }
    }
}

fn perform(
    communicator: &Communicator,
    step: usize,
    what: &Step,
    rank: u32,
    ranks: u32,
) -> Pending {
    let mine: Vec<i64> = (0..what.elements).map(|at| contribution(step, rank, at)).collect();
    let mut target = mine.clone();
    let is_broadcast = matches!(what.collective, Collective::Broadcast { .. });
    let mut own_part = 0;
    if what.collective == Collective::Allgather {
        target = vec![-1; what.elements * ranks as usize];
        own_part = what.elements * rank as usize;
        target[own_part..][..what.elements].copy_from_slice(&mine);
    }
    if !what.in_place && !is_broadcast {
        target.fill(-1);
    }
    let source: *const i64 =
        if what.in_place || is_broadcast { target[own_part..].as_ptr() } else { mine.as_ptr() };
    let cuts = cuts(what, ranks);
    let operation = Operation {
        collective: what.collective,
        datatype: Datatype::I64,
        operator: Operator::Sum,
        elements: what.elements as u64,
        combiner: None,
        blocks: if what.dealt_by.is_some() { Blocks::At(cuts.as_ptr()) } else { Blocks::Even },
        source: source.cast(),
        target: target.as_mut_ptr().cast(),
    };
    let operation =
        if what.collective == Collective::Barrier { Operation::BARRIER } else { operation };
    let mut request = None;
    // SAFETY: both vectors have `elements` elements, are moved without moving their contents into
    // what this returns, and stay there until the request is done.
    unsafe {
        if what.blocking {
            communicator.run(&operation).unwrap();
        } else {
            request = Some(communicator.start(operation).unwrap());
        }
    }
    let expected = expected(step, what, rank, ranks);
    Pending { request, source: mine, target, _cuts: cuts, expected, step }
}

#[test]
fn random_mixes_of_collectives_agree_with_the_oracle() {
    for (seed, size) in [(1, 1), (2, 2), (3, 3), (4, 5)] {
        on_all_ranks(size, move |mut ranks| {
            let communicator = communicator(&mut ranks, &CounterRegistry::default(), "world");
            assert_eq!(communicator.path_kind(&Operation::BARRIER), PathKind::InHost);
            play(&communicator, &script(seed, size, 100), ranks.rank(), size);
        });
    }
}

#[test]
fn hosts_with_direct_links_agree_with_the_oracle() {
    let worlds = [
        (11, 2, 2, "auto", 1, 1),
        (12, 3, 3, "recursive-doubling", 1, 5),
        (13, 5, 5, "rabenseifner", 1, 1),
        (14, 6, 3, "ring", 2, 1),
        (15, 7, 4, "binomial", 1, 3),
        (16, 4, 4, "linear", 1, 1),
        (17, 6, 2, "auto", 3, 4),
        (18, 7, 3, "auto", 16, 64),
    ];
    for (seed, size, hosts, algorithm, leaders, parts) in worlds {
        on_all_ranks(size, move |mut ranks| {
            let settings = direct_settings(hosts, algorithm, leaders, parts);
            let registry = CounterRegistry::default();
            let communicator = communicator_with(&mut ranks, &registry, "world", settings);
            assert_eq!(communicator.path_kind(&Operation::BARRIER), PathKind::Direct);
            play(&communicator, &script(seed, size, 60), ranks.rank(), size);
        });
    }
}

/// The ranks of a communicator, in another order than the world's.
struct Reordered {
    ranks: ThreadRanks,
    /// The rank in the communicator of each rank of the world.
    rank_of: Vec<u32>,
}

impl Bootstrap for Reordered {
    fn rank(&self) -> u32 {
        self.rank_of[self.ranks.rank() as usize]
    }

    fn size(&self) -> u32 {
        self.ranks.size()
    }

    fn allgather(&mut self, mine: &[u8], all: &mut [u8]) -> Result<(), BootstrapError> {
        let mut by_world = vec![0; all.len()];
        self.ranks.allgather(mine, &mut by_world)?;
        for (world, rank) in self.rank_of.iter().enumerate() {
            let place = *rank as usize * mine.len();
            all[place..][..mine.len()]
                .copy_from_slice(&by_world[world * mine.len()..][..mine.len()]);
        }
        Ok(())
    }
}

/// Hosts whose ranks are no neighbours in the communicator, of as many ranks each or not: dealt one by
/// one, backwards, and without order.
#[test]
fn ranks_that_are_no_neighbours_on_their_host_agree_with_the_oracle() {
    let dealt =
        |size: u32, hosts: u32| (0..size).map(move |at| at % hosts * size / hosts + at / hosts);
    let orders: Vec<(u32, Vec<u32>)> = vec![
        (2, dealt(6, 2).collect()),
        (3, dealt(9, 3).collect()),
        (3, (0..7).rev().collect()),
        (2, vec![3, 0, 4, 1, 2]),
        (4, vec![2, 0, 3, 1]),
        (3, vec![1, 4, 0, 2, 3]),
    ];
    for (number, (hosts, rank_of)) in orders.into_iter().enumerate() {
        let size = rank_of.len() as u32;
        on_all_ranks(size, move |mut ranks| {
            let algorithm = ["auto", "linear", "ring"][number % 3];
            let settings = direct_settings(hosts, algorithm, 1, 1);
            let context = Arc::new(Context::open(&mut ranks, settings).unwrap());
            let counters = CounterRegistry::default().open("dealt", size, false);
            let mut ranks = Reordered { ranks, rank_of: rank_of.clone() };
            let hook = Arc::new(|| Verdict::GoOn);
            let communicator = Communicator::create(&context, &mut ranks, &counters, hook).unwrap();
            assert_eq!(communicator.path_kind(&Operation::BARRIER), PathKind::Direct);
            play(&communicator, &script(31 + number as u64, size, 80), ranks.rank(), size);
        });
    }
}

/// Every number of ranks on 2 hosts whose ranks are dealt to 1, 2 and 4 sockets: each socket's leader
/// goes between hosts, and the report says so.
#[test]
fn leaders_of_sockets_agree_with_the_oracle() {
    for (size, sockets) in (2..=17).flat_map(|size| [1, 2, 4].map(|sockets| (size, sockets))) {
        on_all_ranks(size, move |mut ranks| {
            let settings = Settings { sockets: Some(sockets), ..direct_settings(2, "auto", 1, 1) };
            let registry = CounterRegistry::default();
            let communicator = communicator_with(&mut ranks, &registry, "world", settings);
            let seed = u64::from(100 * size + sockets);
            play(&communicator, &script(seed, size, 12), ranks.rank(), size);
            if ranks.rank() == 0 {
                let note = registry.report().communicators[0].note.clone();
                // Every host has as many leaders as sockets, if it has as many ranks.
                let leaders = sockets.min(size / 2) + sockets.min(size.div_ceil(2));
                let form = format!("a leader a socket: {leaders} in all");
                assert_eq!(note, if sockets == 1 { String::new() } else { form });
            }
        });
    }
}

/// Runs a script, checking results late and not in the order of their start.
fn play(communicator: &Communicator, script: &[Step], rank: u32, ranks: u32) {
    let mut pending = Vec::new();
    for (step, what) in script.iter().enumerate() {
        pending.push(perform(communicator, step, what, rank, ranks));
        if pending.len() > 3 {
            let oldest = pending.remove((step + rank as usize) % 3);
            let what = &script[oldest.step];
            oldest.check(what, rank);
        }
    }
    for last in pending.into_iter().rev() {
        let what = &script[last.step];
        last.check(what, rank);
    }
}

#[test]
fn a_started_operation_completes_while_its_rank_does_something_else() {
    on_all_ranks(3, |mut ranks| {
        let communicator = communicator(&mut ranks, &CounterRegistry::default(), "world");
        let what = Step {
            collective: Collective::Allreduce,
            elements: 70_001,
            dealt_by: None,
            in_place: false,
            blocking: false,
        };
        let pending = perform(&communicator, 0, &what, ranks.rank(), 3);
        // Rank 0 goes away until the others are done; only its process's thread can help them.
        if ranks.rank() != 0 {
            pending.request.as_ref().unwrap().wait().unwrap();
        }
        ranks.allgather(&[0], &mut [0; 3]).unwrap();
        pending.check(&what, ranks.rank());
    });
}

#[test]
fn operations_are_counted_once_by_the_rank_that_counts() {
    let registry = Arc::new(CounterRegistry::default());
    let seen = Arc::clone(&registry);
    on_all_ranks(2, move |mut ranks| {
        let communicator = communicator(&mut ranks, &registry, "world");
        for _ in 0..5 {
            // SAFETY: a barrier has no buffers.
            unsafe { communicator.run(&Operation::BARRIER) }.unwrap();
        }
    });
    let report = seen.report();
    assert_eq!((report.in_host, report.in_tree, report.passed_through), (5, 0, 0));
    assert_eq!(report.communicators[0].collectives[&CollectiveKind::Barrier].in_host, 5);
    assert_eq!(report.communicators[0].hosts, 1);
}

#[test]
fn hosts_that_nothing_may_join_are_refused_alike_on_all_ranks() {
    for fabric in [FabricChoice::Manager, FabricChoice::Off] {
        on_all_ranks(4, move |mut ranks| {
            // Rank 0's word counts, whatever the others would like.
            let fabric = if ranks.rank() == 0 { fabric } else { FabricChoice::Job };
            let settings = Settings { hosts: 2, fabric, ..settings() };
            let context = Arc::new(Context::open(&mut ranks, settings).unwrap());
            let counters = CounterRegistry::default().open("world", 4, false);
            let go_on = Arc::new(|| Verdict::GoOn);
            let refused =
                Communicator::create(&context, &mut ranks, &counters, go_on).err().unwrap();
            assert!(refused.to_string().contains("spans 2 hosts"), "{refused}");
        });
    }
}

#[test]
fn without_a_manager_the_job_joins_its_hosts_itself() {
    let registry = Arc::new(CounterRegistry::default());
    let seen = Arc::clone(&registry);
    on_all_ranks(4, move |mut ranks| {
        // A manager that rank 0 does not name is not asked for.
        let manager = (ranks.rank() == 1).then(|| "127.0.0.1:1".to_owned());
        let settings = Settings { hosts: 2, manager, ..settings() };
        let context = Arc::new(Context::open(&mut ranks, settings).unwrap());
        assert_eq!(context.unreachable(), None);
        assert!(context.own_address().unwrap().is_loopback(), "both hosts are on this machine");
        let counters = registry.open("world", 4, ranks.rank() == 0);
        let go_on = Arc::new(|| Verdict::GoOn);
        let joined = Communicator::create(&context, &mut ranks, &counters, go_on).unwrap();
        assert!(!joined.is_on_one_host());
        for _ in 0..5 {
            // SAFETY: a barrier has no buffers.
            unsafe { joined.run(&Operation::BARRIER) }.unwrap();
        }
    });
    let report = seen.report();
    assert_eq!((report.direct, report.in_tree, report.passed_through), (5, 0, 0));
}

#[test]
fn a_manager_that_does_not_answer_is_named_and_costs_the_tree_alone() {
    on_all_ranks(2, |mut ranks| {
        let directory = std::env::temp_dir().join(format!("tributary-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let token_file = directory.join(format!("token-{}", ranks.rank()));
        std::fs::write(&token_file, "0123456789abcdef".repeat(2)).unwrap();
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&token_file, private).unwrap();
        let settings = Settings {
            manager: Some("127.0.0.1:1".to_owned()),
            token_file: Some(token_file),
            ..settings()
        };
        for (hosts, path) in [(1, PathKind::InHost), (2, PathKind::Direct)] {
            let settings = Settings { hosts, ..settings.clone() };
            let context = Arc::new(Context::open(&mut ranks, settings).unwrap());
            let problem = context.without_manager().unwrap();
            assert!(problem.contains("127.0.0.1:1 does not answer"), "{problem}");
            let registry = CounterRegistry::default();
            let counters = registry.open("world", 2, true);
            let go_on = Arc::new(|| Verdict::GoOn);
            let joined = Communicator::create(&context, &mut ranks, &counters, go_on).unwrap();
            for _ in 0..5 {
                // SAFETY: a barrier has no buffers.
                unsafe { joined.run(&Operation::BARRIER) }.unwrap();
            }
            drop(joined);
            let report = registry.report();
            let counted = if path == PathKind::InHost { report.in_host } else { report.direct };
            assert_eq!((counted, report.passed_through), (5, 0), "{report}");
            let is_without =
                report.to_string().contains("got no tree: 5 operations over direct links");
            assert_eq!(is_without, hosts == 2, "{report}");
        }
    });
}

#[test]
fn what_mpi_does_not_define_is_refused() {
    on_all_ranks(2, |mut ranks| {
        let communicator = communicator(&mut ranks, &CounterRegistry::default(), "world");
        let mut target = [0_u8; 8];
        let operation = Operation {
            collective: Collective::Allreduce,
            datatype: Datatype::F64,
            operator: Operator::BitAnd,
            elements: 1,
            source: target.as_ptr(),
            target: target.as_mut_ptr(),
            ..Operation::BARRIER
        };
        // SAFETY: one element of eight bytes.
        let refused = unsafe { communicator.run(&operation) }.unwrap_err();
        assert_eq!(refused.to_string(), "bit-and is not defined on f64");
        let reduce = Operation {
            collective: Collective::Reduce { root: 2 },
            operator: Operator::Sum,
            ..operation
        };
        // SAFETY: one element of eight bytes.
        let refused = unsafe { communicator.run(&reduce) }.unwrap_err();
        assert!(refused.to_string().contains("root 2 is not a rank"), "{refused}");
    });
}

/// Ranks that wait, in whatever way, for one that gives up; and then any later operation.
#[test]
fn a_communicator_given_up_by_one_rank_ends_at_all() {
    on_all_ranks(4, |mut ranks| {
        let communicator = communicator(&mut ranks, &CounterRegistry::default(), "given up");
        if ranks.rank() == 3 {
            std::thread::sleep(std::time::Duration::from_millis(20));
            communicator.give_up();
        } else if ranks.rank() == 0 {
            // SAFETY: a barrier has no buffers.
            let request = unsafe { communicator.start(Operation::BARRIER) }.unwrap();
            assert!(matches!(request.wait(), Err(CollectiveError::GivenUp { .. })));
        }
        // SAFETY: a barrier has no buffers.
        let outcome = unsafe { communicator.run(&Operation::BARRIER) };
        assert!(matches!(outcome, Err(CollectiveError::GivenUp { .. })), "{outcome:?}");
        // SAFETY: a barrier has no buffers.
        let request = unsafe { communicator.start(Operation::BARRIER) }.unwrap();
        assert!(matches!(request.test(), Err(CollectiveError::GivenUp { .. })));
    });
}

/// A rank may learn it while it waits, as an MPI whose communicator another thread revokes.
#[test]
fn a_verdict_while_waiting_ends_the_wait() {
    on_all_ranks(2, |mut ranks| {
        let context = Arc::new(Context::open(&mut ranks, settings()).unwrap());
        let counters = CounterRegistry::default().open("world", 2, false);
        let give_up = Arc::new(|| Verdict::GiveUp);
        let communicator = Communicator::create(&context, &mut ranks, &counters, give_up).unwrap();
        if ranks.rank() == 0 {
            // SAFETY: a barrier has no buffers.
            let outcome = unsafe { communicator.run(&Operation::BARRIER) };
            assert!(matches!(outcome, Err(CollectiveError::GivenUp { .. })), "{outcome:?}");
        }
        ranks.allgather(&[0], &mut [0; 2]).unwrap(); // rank 1 stays until here
    });
}

#[test]
fn bad_blocks_are_named() {
    let operation = |collective, elements: &mut [i64]| Operation {
        collective,
        datatype: Datatype::I64,
        operator: Operator::Sum,
        elements: elements.len() as u64,
        source: elements.as_ptr().cast(),
        target: elements.as_mut_ptr().cast(),
        ..Operation::BARRIER
    };
    on_all_ranks(2, move |mut ranks| {
        let settings = direct_settings(2, "auto", 1, 1);
        let communicator =
            communicator_with(&mut ranks, &CounterRegistry::default(), "apart", settings);
        let back_and_forth = [0_u64, 4, 3];
        let dealt = operation(Collective::ReduceScatter, &mut [1; 3]);
        let dealt = Operation { blocks: Blocks::At(back_and_forth.as_ptr()), ..dealt };
        // SAFETY: refused before a buffer is used; the blocks are there.
        let refused = unsafe { communicator.run(&dealt) }.unwrap_err();
        let label = "apart".to_owned();
        assert_eq!(refused, CollectiveError::Blocks { label, end: 3, elements: 3 });
    });
    on_all_ranks(2, move |mut ranks| {
        let communicator = communicator(&mut ranks, &CounterRegistry::default(), "world");
        let cuts = [0_u64, 1, 4];
        for (blocks, end) in [(Blocks::Even, 0), (Blocks::At(cuts.as_ptr()), 4)] {
            let dealt = operation(Collective::ReduceScatter, &mut [1; 3]);
            let dealt = Operation { blocks, ..dealt };
            // SAFETY: refused before a buffer is used; the blocks are there.
            let refused = unsafe { communicator.run(&dealt) }.unwrap_err();
            let label = "world".to_owned();
            assert_eq!(refused, CollectiveError::Blocks { label, end, elements: 3 });
        }
    });
}

/// Between hosts other limits hold than inside one; a scan that gathers all vectors counts all.
#[test]
fn hosts_have_limits_of_their_own() {
    for (rank_of, scan_bytes) in [([0, 1, 2, 3], 1 << 20), ([0, 2, 1, 3], 1 << 18)] {
        on_all_ranks(4, move |mut ranks| {
            let (inside, between) = (Some(1), Some(if ranks.rank() == 0 { 1 << 20 } else { 7 }));
            let no_limits = LongestBytes::default();
            let settings = Settings {
                offload_max: OffloadMax {
                    inside: LongestBytes { allgather: inside, scan: inside, ..no_limits },
                    between: LongestBytes { allgather: between, scan: between, ..no_limits },
                },
                ..direct_settings(2, "auto", 1, 1)
            };
            let context = Arc::new(Context::open(&mut ranks, settings).unwrap());
            let counters = CounterRegistry::default().open("apart", 4, false);
            let mut ranks = Reordered { ranks, rank_of: rank_of.to_vec() };
            let hook = Arc::new(|| Verdict::GoOn);
            let communicator = Communicator::create(&context, &mut ranks, &counters, hook).unwrap();
            let longest = |kind| communicator.longest_bytes(kind);
            assert_eq!(longest(CollectiveKind::Allgather), Some(1 << 20));
            assert_eq!(longest(CollectiveKind::Exscan), Some(scan_bytes));
            assert_eq!(longest(CollectiveKind::ReduceScatter), Some(u64::MAX));
            assert_eq!(longest(CollectiveKind::Allreduce), None);
        });
    }
}

#[test]
fn the_lengths_that_rank_0_is_told_hold_at_all_ranks() {
    on_all_ranks(3, |mut ranks| {
        let max = if ranks.rank() == 0 { "4096" } else { "7" };
        let settings = Settings::from_environment(|name| {
            (name == "TRIBUTARY_OFFLOAD_MAX").then(|| format!("scan:{max}"))
        });
        let communicator =
            communicator_with(&mut ranks, &CounterRegistry::default(), "world", settings.unwrap());
        let longest = |kind| communicator.longest_bytes(kind);
        assert_eq!(
            [longest(CollectiveKind::Scan), longest(CollectiveKind::Exscan)],
            [Some(4096); 2]
        );
    });
}
