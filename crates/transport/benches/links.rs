//! Costs of links: one-way latency and rate over shared memory, TCP and authenticated TCP, with
//! both ends polling; and the time to make or check the code of a frame.
//!
//! `cargo bench -p tributary-transport --bench links [-- --json] [-- --quick]`
//!
//! Latency is half of a ping-pong's round trip, as quartiles over batches of 100 round trips. Rate
//! is of payload, one way, timed at the receiver, which reads every byte once. Two threads stand
//! for the two processes, each pinned to a core of its own where there are two.
#![allow(clippy::print_stdout, reason = "a benchmark's output is its purpose")]
#![allow(clippy::unwrap_used, reason = "a benchmark that can't run has nothing better to do")]

use std::env;
use std::hint::{black_box, spin_loop};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use tributary_transport::{
    AuthenticationKey, Link, Listener, Sent, ShmListener, ShmOptions, TcpAcceptor, TcpLink,
    TcpOptions, connect_shm, connect_tcp,
};
use tributary_wire::frame::{
    Edge, HEADER_BYTES, Header, Message, Part, RetransmitState, Shape, Target, Versions,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, FrameKey, GroupId, OperationNumber, Operator,
    SegmentIndex, Sequence,
};

const TIMEOUT: Duration = Duration::from_secs(10);
const PAYLOAD_MAX_BYTES: u32 = 64 << 10;
const ROUNDS_PER_BATCH: u32 = 100;

type Pair = (Box<dyn Link>, Box<dyn Link>);

/// One line of the result.
struct Row {
    link: &'static str,
    what: &'static str,
    payload_bytes: usize,
    /// Lower quartile, median, upper quartile.
    quartiles: [f64; 3],
    unit: &'static str,
}

fn main() {
    let arguments: Vec<String> = env::args().skip(1).collect();
    let has = |flag: &str| arguments.iter().any(|argument| argument == flag);
    let batches = if has("--quick") { 50 } else { 2000 };
    let quartiles = line_ns(batches);
    let (link, what) = ("line", "one way");
    let mut rows = vec![Row { link, what, payload_bytes: 8, quartiles, unit: "ns" }];
    for (link, pair) in [
        ("shm", shm_pair as fn() -> Pair),
        ("tcp", tcp_pair),
        ("authenticated tcp", authenticated_tcp_pair),
    ] {
        let batches = if link != "shm" { batches / 4 } else { batches };
        for payload_bytes in [0, 8, 64, 1024, 4096] {
            let quartiles = one_way_ns(pair(), payload_bytes, batches);
            rows.push(Row { link, what: "one way", payload_bytes, quartiles, unit: "ns" });
        }
        for payload_bytes in [8, 4096, 64 << 10] {
            let quartiles = frame_ns(pair(), payload_bytes, batches);
            rows.push(Row { link, what: "streamed", payload_bytes, quartiles, unit: "ns" });
            let rate = |ns: f64| payload_bytes as f64 / ns;
            let quartiles = [rate(quartiles[2]), rate(quartiles[1]), rate(quartiles[0])];
            rows.push(Row { link, what: "rate", payload_bytes, quartiles, unit: "GB/s" });
        }
    }
    // The cost of a code alone, without a link.
    for payload_bytes in [8, 1388, 4096, 64 << 10] {
        let quartiles = authentication_ns(payload_bytes, batches);
        rows.push(Row { link: "code", what: "made", payload_bytes, quartiles, unit: "ns" });
    }
    rows.iter().for_each(if has("--json") { print_json } else { print_text });
}

fn print_text(row: &Row) {
    let Row { link, what, payload_bytes, quartiles: [lower, median, upper], unit } = row;
    println!(
        "{link:10}  {what:8}  {payload_bytes:6} B  {lower:10.3} {median:10.3} {upper:10.3} {unit}"
    );
}

fn print_json(row: &Row) {
    let [lower, median, upper] = row.quartiles;
    let line = serde_json::json!({
        "link": row.link, "what": row.what, "payload_bytes": row.payload_bytes,
        "lower_quartile": lower, "median": median, "upper_quartile": upper, "unit": row.unit,
    });
    println!("{line}");
}

fn accept_one<L: Listener>(listener: &mut L) -> L::Link {
    loop {
        if let Some(link) = listener.accept(Instant::now()).unwrap() {
            return link;
        }
    }
}

fn shm_pair() -> Pair {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("bench.sock");
    let options = ShmOptions::new(PAYLOAD_MAX_BYTES).unwrap();
    let mut listener = ShmListener::bind(&path, 0o600, options, TIMEOUT).unwrap();
    let connected = connect_shm(&path, options, TIMEOUT).unwrap();
    (Box::new(connected), Box::new(accept_one(&mut listener)))
}

fn tcp_pair() -> Pair {
    let (connected, accepted) = tcp_links();
    (Box::new(connected), Box::new(accepted))
}

fn authenticated_tcp_pair() -> Pair {
    let (mut connected, mut accepted) = tcp_links();
    connected.authenticate(authentication_key());
    accepted.authenticate(authentication_key());
    (Box::new(connected), Box::new(accepted))
}

fn authentication_key() -> AuthenticationKey {
    AuthenticationKey::new(FrameKey::from_bytes([1; 16]))
}

fn tcp_links() -> (TcpLink, TcpLink) {
    let options = TcpOptions::new(PAYLOAD_MAX_BYTES).unwrap();
    let any_port = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut acceptor = TcpAcceptor::bind(any_port, options).unwrap();
    let connected = connect_tcp(acceptor.address().unwrap(), options, TIMEOUT).unwrap();
    (connected, accept_one(&mut acceptor))
}

/// Pins this thread to the `index`th of the cores it may use, if there are that many.
fn pin(index: usize) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut cores = (0..CpuSet::MAX_CPU).filter(|core| allowed.is_set(*core));
    if let Some(core) = cores.nth(index) {
        let mut one = CpuSet::new();
        one.set(core);
        let _ = sched_setaffinity(None, &one);
    }
}

fn frame(payload_bytes: usize) -> ([u8; HEADER_BYTES], Vec<u8>) {
    let shape = if payload_bytes == 0 {
        Shape::BARRIER
    } else {
        Shape::new(Operator::Sum, Datatype::U8, payload_bytes as u32).unwrap()
    };
    let part = Part {
        operation: OperationNumber(1),
        segment: SegmentIndex(0),
        sequence: Sequence(1),
        shape,
        target: Target::All,
        has_data: payload_bytes != 0,
        retransmit: RetransmitState::default(),
    };
    let edge = Edge {
        group: GroupId(1),
        epoch: Epoch(1),
        child: ChildIndex(0),
        capability: Capability::from_bytes([1; 16]),
        version: Versions::SPOKEN.newest,
    };
    (Header { edge, message: Message::Request(part) }.encode(), vec![1; payload_bytes])
}

fn send(link: &mut dyn Link, header: &[u8; HEADER_BYTES], payload: &[u8]) {
    while link.send(header, payload).unwrap() == Sent::Full {
        spin_loop();
    }
}

/// Waits for a frame and reads every byte of it.
fn receive(link: &mut dyn Link) {
    loop {
        if let Some(frame) = link.receive().unwrap() {
            let (words, rest) = frame.payload.as_chunks::<8>();
            let sum = words.iter().fold(0_u64, |sum, word| sum ^ u64::from_ne_bytes(*word));
            black_box((sum, rest, frame.header));
            return;
        }
        spin_loop();
    }
}

/// A word alone in its pair of cache lines.
#[repr(align(128))]
struct Word(AtomicU64);

/// The machine's own price: a word stored by one thread and seen by the other, there and back.
fn line_ns(batches: usize) -> [f64; 3] {
    let words = Arc::new([Word(AtomicU64::new(0)), Word(AtomicU64::new(0))]);
    let rounds = batches as u64 * u64::from(ROUNDS_PER_BATCH);
    let wait_for = |word: &Word, round: u64| {
        // Acquire and Release: each other's partners, as a link's would be.
        while word.0.load(Ordering::Acquire) != round {
            spin_loop();
        }
    };
    let far = Arc::clone(&words);
    let echo = thread::spawn(move || {
        pin(1);
        for round in 1..=rounds {
            wait_for(&far[0], round);
            far[1].0.store(round, Ordering::Release);
        }
    });
    let near = thread::spawn(move || {
        pin(0);
        let mut samples = Vec::with_capacity(batches);
        let mut begun = Instant::now();
        for round in 1..=rounds {
            words[0].0.store(round, Ordering::Release);
            wait_for(&words[1], round);
            if round.is_multiple_of(u64::from(ROUNDS_PER_BATCH)) {
                samples.push(begun.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS_PER_BATCH));
                begun = Instant::now();
            }
        }
        samples
    });
    let samples = near.join().unwrap();
    echo.join().unwrap();
    quartiles(samples)
}

/// Time to make one frame's code; checking makes it again and compares.
fn authentication_ns(payload_bytes: usize, batches: usize) -> [f64; 3] {
    let (mut header, payload) = frame(payload_bytes);
    let key = authentication_key();
    let batch = || {
        let begun = Instant::now();
        for round in 0..ROUNDS_PER_BATCH {
            header[20] = round as u8;
            black_box(key.code(black_box(&header), black_box(&payload)));
        }
        begun.elapsed().as_nanos() as f64 / f64::from(ROUNDS_PER_BATCH)
    };
    quartiles(std::iter::repeat_with(batch).take(batches / 4).collect())
}

fn quartiles(mut samples: Vec<f64>) -> [f64; 3] {
    samples.sort_by(f64::total_cmp);
    [1, 2, 3].map(|quarter| samples[quarter * (samples.len() - 1) / 4])
}

fn one_way_ns((mut near, mut far): Pair, payload_bytes: usize, batches: usize) -> [f64; 3] {
    let (header, payload) = frame(payload_bytes);
    // The first tenth warms up and is not counted.
    let warmup = batches / 10;
    let rounds = (batches + warmup) as u32 * ROUNDS_PER_BATCH;
    let echo = thread::spawn(move || {
        pin(1);
        let (header, payload) = frame(payload_bytes);
        for _ in 0..rounds {
            receive(&mut *far);
            send(&mut *far, &header, &payload);
            while far.flush().unwrap() == Sent::Full {}
        }
        far
    });
    let samples = thread::spawn(move || {
        pin(0);
        let mut samples = Vec::with_capacity(batches + warmup);
        for _ in 0..batches + warmup {
            let begun = Instant::now();
            for _ in 0..ROUNDS_PER_BATCH {
                send(&mut *near, &header, &payload);
                receive(&mut *near);
            }
            samples.push(begun.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS_PER_BATCH));
        }
        samples.split_off(warmup)
    });
    let samples = samples.join().unwrap();
    drop(echo.join().unwrap());
    quartiles(samples)
}

/// Time per frame of an uninterrupted stream.
fn frame_ns((mut near, mut far): Pair, payload_bytes: usize, batches: usize) -> [f64; 3] {
    let (header, payload) = frame(payload_bytes);
    let warmup = batches / 10;
    let frames = (batches + warmup) as u32 * ROUNDS_PER_BATCH;
    let sender = thread::spawn(move || {
        pin(1);
        (0..frames).for_each(|_| send(&mut *near, &header, &payload));
        while near.flush().unwrap() == Sent::Full {}
        near
    });
    let samples = thread::spawn(move || {
        pin(0);
        let mut samples = Vec::with_capacity(batches + warmup);
        for _ in 0..batches + warmup {
            let begun = Instant::now();
            (0..ROUNDS_PER_BATCH).for_each(|_| receive(&mut *far));
            samples.push(begun.elapsed().as_nanos() as f64 / f64::from(ROUNDS_PER_BATCH));
        }
        samples.split_off(warmup)
    });
    let samples = samples.join().unwrap();
    drop(sender.join().unwrap());
    quartiles(samples)
}
