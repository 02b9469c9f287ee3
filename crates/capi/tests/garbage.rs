//! Goal: whatever a client leaves uninitialised changes nothing, and whatever it gets wrong is an error, never
//! a crash, a hang or a wrong result. Method: two ranks, threads of this process, make random calls from a
//! seed. Every byte of a spec is random before the members that count are set; in most calls one of these is
//! then spoilt, and the call must be refused by both ranks.

#![allow(clippy::unwrap_used, reason = "a test that can't go on fails")]

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::{Arc, Barrier, Mutex};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sharp_coll::abi::{
    BcastSpec, Buffer, CommInitSpec, DataDesc, GatherSpec, InitSpec, OutOfBand, ReduceSpec,
    RegParams, sharp_coll_default_config,
};
use sharp_coll::interface::*;

type Handle = *mut c_void;

const RANKS: usize = 2;
const SEEDS: u64 = 20;
const CALLS: usize = 400;
/// `SHARP_DTYPE_INT`, `SHARP_OP_SUM`.
const INT: u32 = 1;
const SUM: u32 = 2;

/// What the ranks exchange bytes through.
struct Exchange {
    barrier: Barrier,
    bytes: Mutex<Vec<Vec<u8>>>,
}

/// The context of a rank's callbacks.
struct OutOfBandRank {
    rank: usize,
    exchange: Arc<Exchange>,
}

impl OutOfBandRank {
    fn exchange(&self, mine: &[u8]) -> Vec<Vec<u8>> {
        self.exchange.bytes.lock().unwrap()[self.rank] = mine.to_vec();
        self.exchange.barrier.wait();
        let all = self.exchange.bytes.lock().unwrap().clone();
        self.exchange.barrier.wait();
        all
    }
}

unsafe extern "C" fn bcast(
    context: *mut c_void,
    buffer: *mut c_void,
    len: c_int,
    root: c_int,
) -> c_int {
    // SAFETY: the context of `open`, and a buffer of `len` bytes.
    let (rank, bytes) = unsafe {
        let bytes = std::slice::from_raw_parts_mut(buffer.cast::<u8>(), len as usize);
        (&*context.cast::<OutOfBandRank>(), bytes)
    };
    bytes.copy_from_slice(&rank.exchange(bytes)[root as usize]);
    0
}

unsafe extern "C" fn gather(
    context: *mut c_void,
    root: c_int,
    source: *mut c_void,
    target: *mut c_void,
    len: c_int,
) -> c_int {
    // SAFETY: the context of `open`, and a source of `len` bytes.
    let (rank, mine) = unsafe {
        let mine = std::slice::from_raw_parts(source.cast::<u8>(), len as usize);
        (&*context.cast::<OutOfBandRank>(), mine)
    };
    let all = rank.exchange(mine).concat();
    if rank.rank == root as usize {
        // SAFETY: the root has room for all ranks' bytes.
        unsafe { ptr::copy_nonoverlapping(all.as_ptr(), target.cast(), all.len()) };
    }
    0
}

/// A struct of random bytes, as a client's stack may have it.
///
/// # Safety
/// Any bits are a value of `T`.
unsafe fn garbage<T>(random: &mut Pcg64Mcg) -> T {
    let mut value = MaybeUninit::<T>::uninit();
    let bytes = value.as_mut_ptr().cast::<u8>();
    for at in 0..size_of::<T>() {
        // SAFETY: within the struct.
        unsafe { bytes.add(at).write(random.random()) };
    }
    // SAFETY: as the caller promises.
    unsafe { value.assume_init() }
}

/// A rank with a communicator.
struct Rank {
    out_of_band: OutOfBandRank,
    context: Handle,
    comm: Handle,
    /// Decides the same at all ranks.
    random: Pcg64Mcg,
    /// Fills what does not count.
    noise: Pcg64Mcg,
}

impl Rank {
    fn open(rank: usize, exchange: Arc<Exchange>, seed: u64) -> Self {
        let mut opened = Self {
            out_of_band: OutOfBandRank { rank, exchange },
            context: ptr::null_mut(),
            comm: ptr::null_mut(),
            random: Pcg64Mcg::seed_from_u64(seed),
            noise: Pcg64Mcg::seed_from_u64(seed ^ (rank as u64 + 1) << 32),
        };
        let oob_ctx = (&raw mut opened.out_of_band).cast();
        // SAFETY: every member but the functions may have any bits, and those are set.
        let spec = unsafe {
            let mut spec: MaybeUninit<InitSpec> = garbage(&mut opened.noise);
            let at = spec.as_mut_ptr();
            (&raw mut (*at).world_rank).write(rank as c_int);
            (&raw mut (*at).world_size).write(RANKS as c_int);
            (&raw mut (*at).progress_func).write(None);
            (&raw mut (*at).config).write(sharp_coll_default_config);
            let callbacks = OutOfBand { bcast: Some(bcast), barrier: None, gather: Some(gather) };
            (&raw mut (*at).oob_colls).write(callbacks);
            (&raw mut (*at).oob_ctx).write(oob_ctx);
            spec.assume_init()
        };
        // SAFETY: the callbacks are those above, and their context lives until the end of this function.
        assert_eq!(unsafe { sharp_coll_init(&spec, &mut opened.context) }, 0);
        // SAFETY: any bits are a value.
        let mut spec: CommInitSpec = unsafe { garbage(&mut opened.noise) };
        (spec.rank, spec.size, spec.oob_ctx) = (rank as c_int, RANKS as c_int, oob_ctx);
        // SAFETY: as above.
        assert_eq!(unsafe { sharp_coll_comm_init(opened.context, &spec, &mut opened.comm) }, 0);
        opened
    }

    fn close(self) {
        assert_eq!(sharp_coll_comm_destroy(self.comm), 0);
        assert_eq!(sharp_coll_finalize(self.context), 0);
        assert!(sharp_coll_comm_destroy(self.comm) < 0);
        assert!(sharp_coll_progress(self.context) < 0);
    }

    /// A descriptor of `bytes`, sometimes registered, sometimes not.
    fn desc(&mut self, bytes: &mut [u8]) -> DataDesc {
        let mut mem_handle = ptr::null_mut();
        if self.random.random() {
            let (start, length) = (bytes.as_mut_ptr().cast(), bytes.len());
            // SAFETY: `mem_handle` is valid.
            let code = unsafe { sharp_coll_reg_mr(self.context, start, length, &mut mem_handle) };
            assert_eq!(code, 0);
        }
        let buffer = Buffer { ptr: bytes.as_mut_ptr().cast(), length: bytes.len(), mem_handle };
        DataDesc { kind: 0, mem_type: 0, buffer }
    }

    /// Spoils a descriptor that has bytes.
    fn spoil_desc(&mut self, desc: &mut DataDesc, with_memory_type: bool) {
        match self.random.random_range(0..if with_memory_type { 5 } else { 4 }) {
            0 => desc.buffer.ptr = ptr::null_mut(),
            1 => desc.kind = 1 + self.random.random_range(0..u32::MAX - 1),
            2 => desc.buffer.mem_handle = self.no_handle(),
            3 => desc.buffer.length = usize::MAX - self.random.random_range(0..64_usize),
            _ => desc.mem_type = 1 + self.random.random_range(0..u32::MAX - 1),
        }
    }

    /// What was never given out as the kind of handle that is asked for.
    fn no_handle(&mut self) -> Handle {
        match self.random.random_range(0..3) {
            0 => self.context,
            1 => ptr::without_provenance_mut(self.random.random_range(1..1 << 40)),
            _ => ptr::without_provenance_mut(self.random.random::<u64>() as usize | 0xFF << 56),
        }
    }

    /// Makes a call: blocking, or started and waited for. Its code, and that nothing is left of a refusal.
    fn perform<S>(&mut self, name: &str, spec: &S) -> c_int {
        let spec: *const c_void = ptr::from_ref(spec).cast();
        let is_blocking = self.random.random();
        let mut request = ptr::without_provenance_mut(0xDEAD);
        // SAFETY: `spec` is that of `name`, its buffers live as long as the caller's frame, which waits.
        let code = unsafe {
            let (comm, request) = (self.comm, &raw mut request);
            match (name, is_blocking) {
                ("allreduce", true) => sharp_coll_do_allreduce(comm, spec.cast()),
                ("allreduce", _) => sharp_coll_do_allreduce_nb(comm, spec.cast(), request),
                ("reduce", true) => sharp_coll_do_reduce(comm, spec.cast()),
                ("reduce", _) => sharp_coll_do_reduce_nb(comm, spec.cast(), request),
                ("scatter", true) => sharp_coll_do_reduce_scatter(comm, spec.cast()),
                ("scatter", _) => sharp_coll_do_reduce_scatter_nb(comm, spec.cast(), request),
                ("bcast", true) => sharp_coll_do_bcast(comm, spec.cast()),
                ("bcast", _) => sharp_coll_do_bcast_nb(comm, spec.cast(), request),
                (_, true) => sharp_coll_do_allgather(comm, spec.cast()),
                (_, _) => sharp_coll_do_allgather_nb(comm, spec.cast(), request),
            }
        };
        if is_blocking {
            return code;
        }
        if code != 0 {
            assert!(request.is_null(), "{name}: a refusal left a handle");
            return code;
        }
        sharp_coll_req_wait(request)
    }

    fn reduce_spec(&mut self, source: &mut [u8], target: &mut [u8]) -> ReduceSpec {
        // SAFETY: any bits are a value.
        let mut spec: ReduceSpec = unsafe { garbage(&mut self.noise) };
        (spec.sbuf_desc, spec.rbuf_desc) = (self.desc(source), self.desc(target));
        (spec.dtype, spec.op, spec.length) = (INT, SUM, source.len() / 4);
        spec
    }

    fn allreduce(&mut self, is_spoilt: bool) {
        let count = self.random.random_range(1..300);
        let (mut source, mut target) = (numbers(self.out_of_band.rank, count), vec![0; 4 * count]);
        let mut spec = self.reduce_spec(&mut source, &mut target);
        if !is_spoilt {
            assert_eq!(self.perform("allreduce", &spec), 0);
            assert!(target == sums(count));
            return;
        }
        match self.random.random_range(0..6) {
            0 => spec.dtype = self.random.random_range(12..=u32::MAX),
            1 => spec.op = self.random.random_range(10..=u32::MAX),
            2 => (spec.dtype, spec.op) = (4, 4),
            3 => spec.length += self.random.random_range(1..usize::MAX / 2),
            4 => {
                let mut desc = spec.sbuf_desc;
                self.spoil_desc(&mut desc, true);
                spec.sbuf_desc = desc;
            }
            _ => {
                // Overlapping, but not one.
                spec.rbuf_desc = spec.sbuf_desc;
                spec.sbuf_desc.buffer.mem_handle = ptr::null_mut();
                spec.rbuf_desc.buffer.mem_handle = ptr::null_mut();
                spec.rbuf_desc.buffer.ptr = spec.rbuf_desc.buffer.ptr.wrapping_byte_add(1);
            }
        }
        assert!(self.perform("allreduce", &spec) < 0);
    }

    fn reduce(&mut self, is_spoilt: bool) {
        let count = self.random.random_range(1..300);
        let (mut source, mut target) = (numbers(self.out_of_band.rank, count), vec![0; 4 * count]);
        let mut spec = self.reduce_spec(&mut source, &mut target);
        let root = self.random.random_range(0..RANKS);
        spec.root = root as c_int;
        if is_spoilt {
            let too_large = self.random.random_range(RANKS as c_int..=c_int::MAX);
            spec.root = if self.random.random() { too_large } else { -too_large };
            assert!(self.perform("reduce", &spec) < 0);
            return;
        }
        if self.out_of_band.rank != root {
            // SAFETY: any bits are a value.
            spec.rbuf_desc = unsafe { garbage(&mut self.noise) };
        }
        assert_eq!(self.perform("reduce", &spec), 0);
        assert!(self.out_of_band.rank != root || target == sums(count));
    }

    fn bcast(&mut self, is_spoilt: bool) {
        let count = self.random.random_range(1..300);
        let mut bytes = numbers(self.out_of_band.rank, count);
        // SAFETY: any bits are a value.
        let mut spec: BcastSpec = unsafe { garbage(&mut self.noise) };
        let root = self.random.random_range(0..RANKS);
        (spec.root, spec.size, spec.buf_desc) = (root as c_int, bytes.len(), self.desc(&mut bytes));
        if !is_spoilt {
            assert_eq!(self.perform("bcast", &spec), 0);
            assert!(bytes == numbers(root, count));
            return;
        }
        match self.random.random_range(0..3) {
            0 => spec.root = -1 - root as c_int,
            1 => spec.size += self.random.random_range(1..usize::MAX / 2),
            _ => {
                let mut desc = spec.buf_desc;
                self.spoil_desc(&mut desc, true);
                spec.buf_desc = desc;
            }
        }
        assert!(self.perform("bcast", &spec) < 0);
    }

    /// A reduce-scatter of a random window.
    fn scatter(&mut self, is_spoilt: bool) {
        let block = self.random.random_range(1..100);
        let whole = block * RANKS;
        let start = self.random.random_range(0..whole);
        let end = self.random.random_range(start + 1..=whole);
        let rank = self.out_of_band.rank;
        let mut source = numbers(rank, whole)[4 * start..4 * end].to_vec();
        let mut target = vec![0; 4 * block];
        let mut spec = self.reduce_spec(&mut source, &mut target);
        spec.offset = 4 * start;
        // Garbage: not looked at.
        spec.length = self.noise.random::<u64>() as usize;
        if !is_spoilt {
            assert_eq!(self.perform("scatter", &spec), 0);
            let mut expected = vec![0; 4 * whole];
            expected[4 * start..4 * end].copy_from_slice(&sums(whole)[4 * start..4 * end]);
            assert!(target == expected[4 * rank * block..4 * (rank + 1) * block]);
            return;
        }
        match self.random.random_range(0..4) {
            0 => spec.offset += 4 * (whole - end) + 4,
            1 => spec.offset = usize::MAX - self.random.random_range(0..8_usize),
            2 => spec.sbuf_desc.buffer.length -= 1,
            _ => spec.dtype = self.random.random_range(12..=u32::MAX),
        }
        assert!(self.perform("scatter", &spec) < 0);
    }

    /// An allgather of a random window.
    fn allgather(&mut self, is_spoilt: bool) {
        let block = self.random.random_range(1..100);
        let whole = block * RANKS;
        let start = self.random.random_range(0..whole);
        let end = self.random.random_range(start + 1..=whole);
        let rank = self.out_of_band.rank;
        let parts: Vec<u8> = numbers(7, whole);
        let mut source = parts[4 * rank * block..4 * (rank + 1) * block].to_vec();
        let mut target = vec![0; 4 * (end - start)];
        // SAFETY: any bits are a value.
        let mut spec: GatherSpec = unsafe { garbage(&mut self.noise) };
        (spec.sbuf_desc, spec.rbuf_desc) = (self.desc(&mut source), self.desc(&mut target));
        // Garbage: not looked at.
        spec.sbuf_desc.mem_type = self.noise.random();
        spec.offset = 4 * start;
        if !is_spoilt {
            assert_eq!(self.perform("allgather", &spec), 0);
            assert!(target == parts[4 * start..4 * end]);
            return;
        }
        if self.random.random() {
            spec.offset += 4 * (whole - end) + 1;
        } else {
            let mut desc = spec.rbuf_desc;
            self.spoil_desc(&mut desc, false);
            spec.rbuf_desc = desc;
        }
        assert!(self.perform("allgather", &spec) < 0);
    }

    /// Functions that take a handle, with what is none, and pointers that are null.
    fn mistake_handles(&mut self) {
        let handle = self.no_handle();
        assert_eq!(sharp_coll_req_test(handle), 0);
        assert_eq!(sharp_coll_req_test(ptr::null_mut()), 0);
        assert!(sharp_coll_req_wait(handle) < 0);
        assert!(sharp_coll_req_free(handle) < 0);
        assert!(sharp_coll_req_free(ptr::null_mut()) < 0);
        assert!(sharp_coll_comm_destroy(handle) < 0);
        assert!(sharp_coll_do_barrier(handle) < 0);
        assert!(sharp_coll_dereg_mr(self.context, handle) < 0);
        assert!(sharp_coll_finalize(self.comm) < 0);
        // SAFETY: all pointers are null or valid, and the spec has any bits.
        unsafe {
            let mut mr = handle;
            let params: RegParams = garbage(&mut self.noise);
            assert!(sharp_coll_do_barrier_nb(self.comm, ptr::null_mut()) < 0);
            assert!(sharp_coll_do_allreduce(self.comm, ptr::null()) < 0);
            assert!(sharp_coll_do_bcast(handle, ptr::null()) < 0);
            assert!(sharp_coll_caps_query(self.context, ptr::null_mut()) < 0);
            assert!(sharp_coll_reg_mr(self.context, ptr::null_mut(), 8, &mut mr) < 0);
            assert!(mr.is_null());
            assert!(sharp_coll_reg_mr_v2(self.comm, handle, 8, &params, &mut mr) < 0);
            assert!(sharp_coll_init(ptr::null(), &mut mr) < 0);
            assert!(sharp_coll_comm_init(self.comm, ptr::null(), &mut mr) < 0);
            assert!(sharp_coll_print_config(ptr::null_mut(), -1) < 0);
        }
    }

    fn call(&mut self) {
        let is_spoilt = self.random.random_range(0..3) > 0;
        match self.random.random_range(0..6) {
            0 => self.allreduce(is_spoilt),
            1 => self.reduce(is_spoilt),
            2 => self.bcast(is_spoilt),
            3 => self.scatter(is_spoilt),
            4 => self.allgather(is_spoilt),
            _ => self.mistake_handles(),
        }
    }
}

/// A rank's contribution.
fn numbers(rank: usize, count: usize) -> Vec<u8> {
    let number = |at: usize| (rank as i32 * 1_000_003).wrapping_add(at as i32);
    (0..count).flat_map(|at| number(at).to_le_bytes()).collect()
}

/// What all ranks' contributions add up to.
fn sums(count: usize) -> Vec<u8> {
    let word = |bytes: &[u8]| i32::from_le_bytes(bytes.try_into().unwrap());
    let (one, other) = (numbers(0, count), numbers(1, count));
    let pairs = one.chunks(4).zip(other.chunks(4));
    pairs.flat_map(|(one, other)| word(one).wrapping_add(word(other)).to_le_bytes()).collect()
}

#[test]
fn garbage_is_ignored_and_mistakes_are_refused() {
    for seed in 0..SEEDS {
        let exchange = Arc::new(Exchange {
            barrier: Barrier::new(RANKS),
            bytes: Mutex::new(vec![Vec::new(); RANKS]),
        });
        let start = |rank| {
            let exchange = Arc::clone(&exchange);
            std::thread::spawn(move || {
                let mut rank = Rank::open(rank, exchange, seed);
                (0..CALLS).for_each(|_| rank.call());
                rank.close();
            })
        };
        let ranks: Vec<_> = (0..RANKS).map(start).collect();
        for rank in ranks {
            assert!(rank.join().is_ok(), "seed {seed}");
        }
    }
}
