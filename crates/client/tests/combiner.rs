//! Goal: an operator of the caller's own combines in rank order, inside hosts and between them, and is
//! refused where nothing can call it; what was started calls it only on the thread that asks for the outcome.
//! Method: ranks are threads of this process; the operator does not commute, on elements of 24 bytes.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

mod ranks;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::{self, ThreadId};

use ranks::{ThreadRanks, on_all_ranks};
use tributary_client::report::CounterRegistry;
use tributary_client::{
    Bootstrap, Collective, CollectiveError, Combine, Combiner, Communicator, Context, Operation,
    Path, Settings, Verdict,
};

/// Three words: x -> a x + b, and how many maps it is made of.
type Affine = [u64; 3];

const ELEMENT_BYTES: usize = size_of::<Affine>();

fn compose(left: Affine, right: Affine) -> Affine {
    let offset = left[1].wrapping_mul(right[0]).wrapping_add(right[1]);
    [left[0].wrapping_mul(right[0]), offset, left[2] + right[2]]
}

struct Compose;

fn affine(bytes: &[u8]) -> Affine {
    [0, 8, 16].map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()))
}

impl Combine for Compose {
    fn element_bytes(&self) -> usize {
        ELEMENT_BYTES
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        let operands = left.chunks_exact(ELEMENT_BYTES).zip(right.chunks_exact(ELEMENT_BYTES));
        for (target, (left, right)) in target.chunks_exact_mut(ELEMENT_BYTES).zip(operands) {
            let composed = compose(affine(left), affine(right)).map(u64::to_le_bytes).concat();
            target.copy_from_slice(&composed);
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        let left = target.to_vec();
        self.combine_into(target, &left, source);
    }
}

fn communicator(ranks: &mut ThreadRanks, hosts: u32, between: &str) -> Communicator {
    let (hosts, between) = (hosts.to_string(), between.to_owned());
    let settings = Settings::from_environment(|name| match name {
        "TRIBUTARY_HOSTS" => Some(hosts.clone()),
        "TRIBUTARY_BETWEEN_HOSTS" => Some(between.clone()),
        "TRIBUTARY_HOST_ADDRESS" => Some("127.0.0.1".to_owned()),
        _ => None,
    });
    let context = Arc::new(Context::open(ranks, settings.unwrap()).unwrap());
    let counters = CounterRegistry::default().open("world", ranks.size(), ranks.rank() == 0);
    Communicator::create(&context, ranks, &counters, Arc::new(|| Verdict::GoOn)).unwrap()
}

fn contribution(rank: u32, element: usize) -> Affine {
    let mixed = (u64::from(rank) << 32 | element as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    [mixed | 1, mixed >> 7, 1]
}

fn vector(rank: u32, elements: usize) -> Vec<Affine> {
    (0..elements).map(|element| contribution(rank, element)).collect()
}

/// Runs one operation and returns its target.
fn run(
    communicator: &Communicator,
    collective: Collective,
    rank: u32,
    elements: usize,
) -> Result<Vec<Affine>, CollectiveError> {
    let source = vector(rank, elements);
    let mut target = vec![[0; 3]; elements];
    let operation = Operation {
        collective,
        combiner: Some(Combiner::new(&Compose, false)),
        elements: elements as u64,
        source: source.as_ptr().cast(),
        target: target.as_mut_ptr().cast(),
        ..Operation::BARRIER
    };
    // SAFETY: both vectors have `elements` elements of 24 bytes, and `Compose` is a constant.
    unsafe { communicator.run(&operation)? };
    Ok(target)
}

fn composed(ranks: u32, elements: usize) -> Vec<Affine> {
    let all = (0..ranks).map(|rank| vector(rank, elements));
    let in_order = |left: Vec<Affine>, right: Vec<Affine>| {
        left.into_iter().zip(right).map(|(left, right)| compose(left, right)).collect()
    };
    all.reduce(in_order).unwrap()
}

fn check(ranks: u32, hosts: u32) {
    on_all_ranks(ranks, move |mut ranks| {
        let communicator = communicator(&mut ranks, hosts, "direct");
        let (rank, size) = (ranks.rank(), ranks.size());
        // The last are cut into frames, and reduced in parts at every host.
        for elements in [1, 2, 7, 100, 1000, 3001, 50_001] {
            let all = composed(size, elements);
            let got = run(&communicator, Collective::Allreduce, rank, elements).unwrap();
            assert!(got == all, "allreduce of {elements} at rank {rank} of {size}");
            let root = elements as u32 % size;
            let got = run(&communicator, Collective::Reduce { root }, rank, elements).unwrap();
            assert!(rank != root || got == all, "reduce of {elements} to {root} of {size}");
            // Between hosts vectors of scans are gathered.
            let gathered_max = communicator.gathered_bytes_max() as usize / ELEMENT_BYTES;
            if hosts == 1 || elements <= gathered_max {
                let got = run(&communicator, Collective::Scan, rank, elements).unwrap();
                assert!(got == composed(rank + 1, elements), "scan of {elements}");
            }
        }
    });
}

#[test]
fn operators_combine_in_rank_order_inside_a_host() {
    check(2, 1);
    check(4, 1);
}

#[test]
fn operators_combine_in_rank_order_between_hosts() {
    check(2, 2);
    check(6, 3);
    check(5, 5);
}

#[test]
fn a_combined_operation_takes_direct_links() {
    on_all_ranks(2, |mut ranks| {
        let communicator = communicator(&mut ranks, 2, "direct");
        let combiner = Some(Combiner::new(&Compose, false));
        for elements in [1, 1 << 20] {
            let operation = Operation {
                collective: Collective::Allreduce,
                combiner,
                elements,
                ..Operation::BARRIER
            };
            assert_eq!(operation.len_bytes(), elements as usize * ELEMENT_BYTES);
            let Path::Direct(path) = communicator.path(&operation) else { panic!("not direct") };
            assert!(path.algorithm.keeps_rank_order(), "{path:?}");
        }
    });
}

/// Composes, and looks at who asks for it.
struct OnThread {
    thread: ThreadId,
    elsewhere: AtomicU32,
}

impl Combine for OnThread {
    fn element_bytes(&self) -> usize {
        ELEMENT_BYTES
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        if thread::current().id() != self.thread {
            self.elsewhere.fetch_add(1, Ordering::Relaxed);
        }
        Compose.combine_into(target, left, right);
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        let left = target.to_vec();
        self.combine_into(target, &left, source);
    }
}

/// What `rank` of `size` gets.
fn part_of(collective: Collective, rank: u32, size: u32, elements: usize) -> Vec<Affine> {
    match collective {
        Collective::Scan => composed(rank + 1, elements),
        Collective::Exscan if rank == 0 => Vec::new(),
        Collective::Exscan => composed(rank, elements),
        Collective::Reduce { root } if root != rank => Vec::new(),
        Collective::ReduceScatter => {
            let block = elements / size as usize;
            composed(size, elements)[rank as usize * block..][..block].to_vec()
        }
        _ => composed(size, elements),
    }
}

fn check_started(ranks: u32, hosts: u32) {
    on_all_ranks(ranks, move |mut ranks| {
        let communicator = communicator(&mut ranks, hosts, "direct");
        let (rank, size) = (ranks.rank(), ranks.size());
        let kernel = OnThread { thread: thread::current().id(), elsewhere: AtomicU32::new(0) };
        for collective in [
            Collective::Allreduce,
            Collective::Reduce { root: size - 1 },
            Collective::ReduceScatter,
            Collective::Scan,
            Collective::Exscan,
        ] {
            for elements in [size as usize, 12 * size as usize] {
                let source = vector(rank, elements);
                let mut target = vec![[0; 3]; elements];
                let operation = Operation {
                    collective,
                    combiner: Some(Combiner::new(&kernel, false)),
                    elements: elements as u64,
                    source: source.as_ptr().cast(),
                    target: target.as_mut_ptr().cast(),
                    ..Operation::BARRIER
                };
                let wanted = part_of(collective, rank, size, elements);
                // SAFETY: both vectors have `elements` elements of 24 bytes, and live, as the kernel does,
                // until the operation is over.
                let request = unsafe { communicator.start(operation).unwrap() };
                while !request.test().unwrap() {}
                request.wait().unwrap();
                assert!(target[..wanted.len()] == wanted, "{collective:?} of {elements} at {rank}");
                let is_behind = |element: &Affine| *element == [0; 3];
                assert!(
                    target[wanted.len()..].iter().all(is_behind),
                    "{collective:?} wrote too much"
                );
                // SAFETY: as above; each start is over before the next.
                let prepared = unsafe { communicator.prepare(operation).unwrap() };
                for _ in 0..3 {
                    target.fill([0; 3]);
                    // SAFETY: as above.
                    unsafe { prepared.start() };
                    let ended = prepared.wait_shortly();
                    prepared.hand_over();
                    ended.unwrap_or_else(|| prepared.request().wait()).unwrap();
                    assert!(target[..wanted.len()] == wanted, "prepared {collective:?} at {rank}");
                }
            }
        }
        assert_eq!(kernel.elsewhere.load(Ordering::Relaxed), 0, "called on another thread");
    });
}

#[test]
fn started_operations_combine_in_rank_order_on_the_thread_that_asks() {
    check_started(1, 1);
    check_started(4, 1);
    check_started(4, 2);
    check_started(6, 3);
}

#[test]
fn a_vector_too_long_to_gather_is_refused() {
    on_all_ranks(2, |mut ranks| {
        let communicator = communicator(&mut ranks, 2, "direct");
        let max_bytes = communicator.gathered_bytes_max();
        let elements = max_bytes / ELEMENT_BYTES as u64 + 1;
        let operation = Operation {
            collective: Collective::Allreduce,
            combiner: Some(Combiner::new(&Compose, false)),
            elements,
            ..Operation::BARRIER
        };
        // SAFETY: the operation is refused before it uses its buffers, which are null.
        let outcome = unsafe { communicator.start(operation) }.map(|_| ());
        let refused = matches!(outcome, Err(CollectiveError::NotGathered { len_bytes, .. })
            if len_bytes == elements * ELEMENT_BYTES as u64);
        assert!(refused, "{outcome:?}");
    });
}

#[test]
fn elements_too_long_are_refused() {
    struct Long;
    impl Combine for Long {
        fn element_bytes(&self) -> usize {
            1 << 20
        }
        fn combine_into(&self, _: &mut [u8], _: &[u8], _: &[u8]) {
            panic!("called for elements that are too long");
        }
        fn fold(&self, _: &mut [u8], _: &[u8]) {
            panic!("called for elements that are too long");
        }
    }
    on_all_ranks(2, |mut ranks| {
        let together = communicator(&mut ranks, 1, "direct");
        let max_bytes = together.combined_bytes_max(false);
        assert!((64..1 << 20).contains(&max_bytes), "{max_bytes}");
        let operation = Operation {
            collective: Collective::Allreduce,
            combiner: Some(Combiner::new(&Long, true)),
            elements: 1,
            ..Operation::BARRIER
        };
        // SAFETY: the operation is refused before it uses its buffers, which are null.
        let outcome = unsafe { together.run(&operation) };
        assert!(matches!(outcome, Err(CollectiveError::NotGathered { .. })), "{outcome:?}");
    });
}
