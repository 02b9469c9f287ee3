//! Latency of the host group's operations between processes, beside floors measured in the same
//! run.
//!
//! `cargo bench -p tributary-shm-collectives --bench host [-- FILTER]`. Every rank is a process of its own,
//! pinned to core `rank % cores`. A figure is the mean over a batch of operations; printed are the
//! least, the median and the 90th percentile over batches, as rank 0 saw them. The floors: for a
//! line, one way between two processes (half a round trip); for a vector, `memcpy` of its length.
//! Compare figures of one run only.

#![allow(clippy::print_stdout, clippy::unwrap_used, missing_docs)]

use std::hint::spin_loop;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous};
use tributary_shm_collectives::{Action, Combine, HostGroup, Operation};

struct SumF32;

impl Combine for SumF32 {
    fn element_bytes(&self) -> usize {
        4
    }

    fn combine_into(&self, target: &mut [u8], left: &[u8], right: &[u8]) {
        let (left, right) = (left.as_chunks::<4>().0, right.as_chunks::<4>().0);
        for ((target, left), right) in target.as_chunks_mut::<4>().0.iter_mut().zip(left).zip(right)
        {
            *target = (f32::from_le_bytes(*left) + f32::from_le_bytes(*right)).to_le_bytes();
        }
    }

    fn fold(&self, target: &mut [u8], source: &[u8]) {
        let source = source.as_chunks::<4>().0;
        for (target, source) in target.as_chunks_mut::<4>().0.iter_mut().zip(source) {
            *target = (f32::from_le_bytes(*target) + f32::from_le_bytes(*source)).to_le_bytes();
        }
    }
}

static SUM: SumF32 = SumF32;

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let wanted = |name: &str| filter.as_ref().is_none_or(|filter| name.contains(filter.as_str()));
    println!("{:<38} {:>12} {:>12} {:>12}", "nanoseconds an operation", "least", "median", "p90");
    if wanted("floor") {
        report("floor: line, one way", line_floor());
        for len_bytes in [64 * 1024, 1 << 20, 16 << 20] {
            report(&format!("floor: memcpy {len_bytes}"), memcpy_floor(len_bytes));
        }
    }
    let lengths = [8, 64, 256, 1024, 4096, 16 * 1024, 64 * 1024, 1 << 20, 16 << 20];
    for ranks in [2, 4, 8] {
        for len_bytes in lengths {
            let name = format!("allreduce, {ranks} ranks, {len_bytes} B");
            if wanted(&name) {
                report(&name, group(ranks, Action::Allreduce(&SUM), len_bytes));
            }
        }
        let name = format!("barrier, {ranks} ranks");
        if wanted(&name) {
            report(&name, group(ranks, Action::Barrier, 0));
        }
        let name = format!("broadcast, {ranks} ranks, 8 B");
        if wanted(&name) {
            report(&name, group(ranks, Action::Broadcast { from: 0 }, 8));
        }
        let name = format!("broadcast, {ranks} ranks, 1 MiB");
        if wanted(&name) {
            report(&name, group(ranks, Action::Broadcast { from: 0 }, 1 << 20));
        }
    }
}

fn report(name: &str, mut batches_ns: Vec<f64>) {
    batches_ns.sort_by(f64::total_cmp);
    let at = |part: f64| batches_ns[((batches_ns.len() - 1) as f64 * part) as usize];
    println!("{name:<38} {:>12.1} {:>12.1} {:>12.1}", at(0.0), at(0.5), at(0.9));
}

/// Times batches of `body`, so many and so long that a figure takes about half a second.
fn batches(guess_ns: f64, mut body: impl FnMut()) -> Vec<f64> {
    let per_batch = (5e6 / guess_ns).clamp(1.0, 1e4) as u32;
    let count = (5e8 / (guess_ns * f64::from(per_batch))).clamp(5.0, 100.0) as u32;
    for _ in 0..per_batch.min(1000) {
        body();
    }
    (0..count)
        .map(|_| {
            let since = Instant::now();
            (0..per_batch).for_each(|_| body());
            since.elapsed().as_nanos() as f64 / f64::from(per_batch)
        })
        .collect()
}

/// How long an operation may take, roughly; equal at all ranks, so that they time alike.
fn guess_ns(ranks: u32, len_bytes: usize) -> f64 {
    let crowded = if ranks > cores() { 20_000.0 } else { 200.0 };
    crowded + len_bytes as f64 * 0.3 * f64::from(ranks)
}

fn group(ranks: u32, action: Action, len_bytes: usize) -> Vec<f64> {
    let (offer, handle) = HostGroup::offer(ranks).unwrap();
    let times = in_processes(ranks, |rank| {
        let attachment = HostGroup::attach(&offer, rank, ranks).unwrap();
        while attachment.all_attached().is_err() {
            std::thread::yield_now();
        }
        let mut group = attachment.settle(ranks).unwrap();
        let source = vec![1_u8; len_bytes];
        let mut target = vec![0_u8; len_bytes];
        let operation =
            Operation { action, source: source.as_ptr(), target: target.as_mut_ptr(), len_bytes };
        // SAFETY: both buffers live as long as the closure, and are apart.
        batches(guess_ns(ranks, len_bytes), || unsafe { group.run(&operation).unwrap() })
    });
    drop(handle);
    times
}

/// Half a round trip of one line between two processes.
fn line_floor() -> Vec<f64> {
    let lines = shared_words();
    let mut times = in_processes(2, |rank| {
        let (mine, other) = (&lines[rank as usize * 16], &lines[(1 - rank) as usize * 16]);
        let mut round = 0;
        batches(200.0, || {
            round += 1;
            if rank == 0 {
                mine.store(round, Ordering::Release);
            }
            let mut polls = 0_u32;
            while other.load(Ordering::Acquire) != round {
                polls += 1;
                if polls > 1000 {
                    spin_loop();
                }
            }
            if rank == 1 {
                mine.store(round, Ordering::Release);
            }
        })
    });
    times.iter_mut().for_each(|time| *time /= 2.0);
    times
}

fn memcpy_floor(len_bytes: usize) -> Vec<f64> {
    let source = vec![1_u8; len_bytes];
    let mut target = vec![0_u8; len_bytes];
    batches(len_bytes as f64 * 0.1, || {
        target.copy_from_slice(std::hint::black_box(&source));
        std::hint::black_box(&mut target);
    })
}

/// A page of words that children forked later share.
fn shared_words() -> &'static [AtomicU64; 512] {
    let access = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a fresh anonymous mapping of a page; all bit patterns are valid for atomics, and it
    // is never unmapped.
    unsafe { &*mmap_anonymous(null_mut(), 4096, access, MapFlags::SHARED).unwrap().cast() }
}

fn cores() -> u32 {
    std::thread::available_parallelism().unwrap().get() as u32
}

/// Runs `body` in `ranks` forked processes; returns what it returned in rank 0.
fn in_processes(ranks: u32, body: impl Fn(u32) -> Vec<f64>) -> Vec<f64> {
    let results = shared_words();
    let children: Vec<_> = (0..ranks)
        .map(|rank| {
            // SAFETY: this program has one thread, so the child may go on as usual.
            let child = unsafe { libc::fork() };
            assert!(child >= 0);
            if child == 0 {
                run_child(rank, results, &body);
            }
            child
        })
        .collect();
    for child in children {
        let mut status = 0;
        // SAFETY: waits for a child of this process.
        unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!(status, 0, "a rank failed");
    }
    let count = results[0].load(Ordering::Relaxed) as usize;
    (1..=count).map(|index| f64::from_bits(results[index].load(Ordering::Relaxed))).collect()
}

fn run_child(rank: u32, results: &[AtomicU64; 512], body: impl Fn(u32) -> Vec<f64>) -> ! {
    // SAFETY: plain system calls on this process; the watchdog ends a run that hangs. Pinning may
    // fail where cores are withheld, which only makes the figures noisier. The group is settled
    // after the pinning of all, so that it counts the cores that are used.
    unsafe {
        libc::alarm(120);
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET((rank % cores()) as usize, &mut cpus);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const cpus);
    }
    let times = body(rank);
    if rank == 0 {
        results[0].store(times.len() as u64, Ordering::Relaxed);
        for (word, time) in results[1..].iter().zip(&times) {
            word.store(time.to_bits(), Ordering::Relaxed);
        }
    }
    // SAFETY: leaves without running what belongs to the parent.
    unsafe { libc::_exit(0) }
}
