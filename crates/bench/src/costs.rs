//! Measures the model's constants on this machine, with the links and kernels that operations use.

use std::hint::{black_box, spin_loop};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tributary_algorithms::model::Costs;
use tributary_reduce::Kernel;
use tributary_transport::{Link, Listener, Sent, TcpAcceptor, TcpLink, TcpOptions, connect_tcp};
use tributary_wire::frame::{
    Edge, Header, Message, Part, RetransmitState, Shape, Target, Versions,
};
use tributary_wire::{
    Capability, ChildIndex, Datatype, Epoch, GroupId, OperationNumber, Operator, SegmentIndex,
    Sequence,
};

/// Length of the message for the per-byte costs of network, copy and reduction.
const LONG_BYTES: usize = 64 << 10;
/// Measurements of each constant. The least counts, because other programs on the machine only add to
/// the time.
const SAMPLES: usize = 100;
/// Rounds of one measurement: few, so that some measurements run without an interruption.
const ROUNDS: u32 = 20;
/// Polls of a condition before the thread yields the core.
const SPINS: u32 = 2_000;
const TIMEOUT: Duration = Duration::from_secs(10);

/// Why the constants could not be measured.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("measuring this machine failed: {0}")]
pub struct MeasureError(String);

/// Measures the five constants: those of the network over TCP from this host to its own `address` (on the
/// loopback interface, unless the address is routed elsewhere), the others in memory.
///
/// # Errors
/// If no link can be made.
pub fn measure_costs(address: IpAddr) -> Result<Costs, MeasureError> {
    let short_ns = one_way_ns(address, 4)?;
    let long_ns = one_way_ns(address, LONG_BYTES)?;
    Ok(Costs {
        network_startup_ns: short_ns,
        network_ns_per_byte: ((long_ns - short_ns) / LONG_BYTES as f64).max(0.0),
        memory_startup_ns: least((0..SAMPLES).map(|_| line_ns())),
        memory_ns_per_byte: copy_ns_per_byte(),
        reduce_ns_per_byte: least((0..SAMPLES).map(|_| reduce_ns_per_byte())),
    })
}

fn least(samples: impl Iterator<Item = f64>) -> f64 {
    samples.fold(f64::INFINITY, f64::min)
}

/// Waits for another thread: spins at first, then yields the core to it.
struct Backoff(u32);

impl Backoff {
    fn wait(&mut self) {
        self.0 = self.0.wrapping_add(1);
        if self.0.is_multiple_of(SPINS) {
            thread::yield_now();
        } else {
            spin_loop();
        }
    }
}

/// Half a round trip of a payload, both ends polling.
fn one_way_ns(address: IpAddr, payload_bytes: usize) -> Result<f64, MeasureError> {
    let failed = |error: &dyn std::fmt::Display| MeasureError(error.to_string());
    let options = TcpOptions::new(LONG_BYTES as u32).expect("a frame may be that long");
    let mut acceptor =
        TcpAcceptor::bind(SocketAddr::new(address, 0), options).map_err(|error| failed(&error))?;
    let address = acceptor.address().map_err(|error| failed(&error))?;
    let mut link = connect_tcp(address, options, TIMEOUT).map_err(|error| failed(&error))?;
    let mut echo = loop {
        if let Some(link) = acceptor.accept(Instant::now()).map_err(|error| failed(&error))? {
            break link;
        }
    };
    let rounds = ROUNDS * SAMPLES as u32;
    let (header, payload) = frame(payload_bytes);
    let other = thread::spawn({
        let payload = payload.clone();
        move || {
            (0..rounds).try_for_each(|_| {
                receive(&mut echo)?;
                send(&mut echo, &header, &payload)
            })
        }
    });
    let mut samples = Vec::with_capacity(SAMPLES);
    for _ in 0..SAMPLES {
        let begun = Instant::now();
        for _ in 0..ROUNDS {
            send(&mut link, &header, &payload)?;
            receive(&mut link)?;
        }
        samples.push(begun.elapsed().as_nanos() as f64 / f64::from(2 * ROUNDS));
    }
    other.join().expect("the echo thread returns its errors")?;
    Ok(least(samples.into_iter()))
}

type EncodedHeader = [u8; tributary_wire::frame::HEADER_BYTES];

fn frame(payload_bytes: usize) -> (EncodedHeader, Vec<u8>) {
    let part = Part {
        operation: OperationNumber(0),
        segment: SegmentIndex(0),
        sequence: Sequence(0),
        shape: Shape::new(Operator::Sum, Datatype::F32, payload_bytes as u32 / 4)
            .expect("floats are added, and fit a frame"),
        target: Target::All,
        has_data: true,
        retransmit: RetransmitState::default(),
    };
    let edge = Edge {
        group: GroupId(0),
        epoch: Epoch(0),
        child: ChildIndex(0),
        capability: Capability::default(),
        version: Versions::SPOKEN.newest,
    };
    (Header { edge, message: Message::Request(part) }.encode(), vec![0; payload_bytes])
}

fn send(link: &mut TcpLink, header: &EncodedHeader, payload: &[u8]) -> Result<(), MeasureError> {
    let failed = |error: &dyn std::fmt::Display| MeasureError(error.to_string());
    let mut backoff = Backoff(0);
    while link.send(header, payload).map_err(|error| failed(&error))? == Sent::Full {
        backoff.wait();
    }
    while link.flush().map_err(|error| failed(&error))? == Sent::Full {
        backoff.wait();
    }
    Ok(())
}

fn receive(link: &mut TcpLink) -> Result<(), MeasureError> {
    let mut backoff = Backoff(0);
    loop {
        match link.receive() {
            Ok(Some(frame)) => {
                black_box(frame.payload);
                return Ok(());
            }
            Ok(None) => backoff.wait(),
            Err(error) => return Err(MeasureError(error.to_string())),
        }
    }
}

/// The time of a cache line from one thread to another.
fn line_ns() -> f64 {
    let line = Arc::new(AtomicU64::new(0));
    let other = thread::spawn({
        let line = Arc::clone(&line);
        move || {
            let mut backoff = Backoff(0);
            for round in 0..u64::from(ROUNDS) {
                // Acquire: pairs with the Release of the other thread's store.
                while line.load(Ordering::Acquire) != 2 * round + 1 {
                    backoff.wait();
                }
                // Release: pairs with the Acquire of the other thread's load.
                line.store(2 * round + 2, Ordering::Release);
            }
        }
    });
    let mut backoff = Backoff(0);
    let begun = Instant::now();
    for round in 0..u64::from(ROUNDS) {
        // Release: pairs with the Acquire of the other thread's load.
        line.store(2 * round + 1, Ordering::Release);
        // Acquire: pairs with the Release of the other thread's store.
        while line.load(Ordering::Acquire) != 2 * round + 2 {
            backoff.wait();
        }
    }
    let elapsed = begun.elapsed();
    other.join().expect("the other thread only counts");
    elapsed.as_nanos() as f64 / f64::from(2 * ROUNDS)
}

/// Copies pieces from one buffer to another, each buffer larger than a second-level cache.
fn copy_ns_per_byte() -> f64 {
    const BUFFER_BYTES: usize = 32 << 20;
    let source = vec![1_u8; BUFFER_BYTES];
    let mut target = vec![2_u8; BUFFER_BYTES];
    let pieces = target.chunks_exact_mut(LONG_BYTES).zip(source.chunks_exact(LONG_BYTES));
    least(pieces.map(|(target, source)| {
        let begun = Instant::now();
        target.copy_from_slice(source);
        black_box(target);
        begun.elapsed().as_nanos() as f64 / LONG_BYTES as f64
    }))
}

/// Sums one float vector into another, in cache; per byte of input.
fn reduce_ns_per_byte() -> f64 {
    let kernel = Kernel::new(Operator::Sum, Datatype::F32).expect("floats are added");
    let source = vec![0_u8; LONG_BYTES];
    let mut target = vec![0_u8; LONG_BYTES];
    let begun = Instant::now();
    for _ in 0..ROUNDS {
        kernel.fold(black_box(&mut target), black_box(&source));
    }
    begun.elapsed().as_nanos() as f64 / (f64::from(ROUNDS) * LONG_BYTES as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_constant_is_a_positive_time() {
        let costs = measure_costs(IpAddr::from([127, 0, 0, 1])).unwrap();
        for value in [
            costs.network_startup_ns,
            costs.memory_startup_ns,
            costs.memory_ns_per_byte,
            costs.reduce_ns_per_byte,
        ] {
            assert!(value.is_finite() && value > 0.0, "{costs:?}");
        }
        assert!(costs.network_ns_per_byte >= 0.0);
    }
}
