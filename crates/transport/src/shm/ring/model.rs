//! The ring under the model checker: every interleaving of a producer and a consumer that sleep.
//!
//! Goal: no record is lost, torn or read while it is overwritten, and neither side sleeps through
//! what it waits for. Method: the real `Producer` and `Consumer` run on loom's atomics. The two
//! doorbells are loom's `Notify`, so that a lost wake-up is a deadlock, which loom reports. The
//! ring has room for one record at a time, so both sides have to sleep. Each canary leaves out one
//! ordering and must fail.

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicU64, fence};
use loom::sync::{Arc, Notify};
use loom::thread;

use super::*;

/// Room for one record and the ready word after it.
const LINES: usize = 2;
const RECORDS: u8 = 3;

/// What a canary leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    Fences,
    ReadyOrder,
    ReleasedOrder,
}

struct Shared {
    ready: Vec<AtomicU32>,
    /// The rest of each header line.
    rest: Vec<UnsafeCell<u8>>,
    released: AtomicU64,
    producer_waiting: AtomicU64,
    consumer_waiting: AtomicU64,
    broken: Broken,
}

impl Shared {
    fn new(lines: usize, broken: Broken) -> Arc<Self> {
        Arc::new(Self {
            ready: (0..lines).map(|_| AtomicU32::new(0)).collect(),
            rest: (0..lines).map(|_| UnsafeCell::new(0)).collect(),
            released: AtomicU64::new(0),
            producer_waiting: AtomicU64::new(0),
            consumer_waiting: AtomicU64::new(0),
            broken,
        })
    }

    fn word(&self, side: Side) -> &AtomicU64 {
        match side {
            Side::Producer => &self.producer_waiting,
            Side::Consumer => &self.consumer_waiting,
        }
    }

    fn order_unless(&self, broken: Broken, order: Ordering) -> Ordering {
        if self.broken == broken { Relaxed } else { order }
    }
}

impl Memory for Arc<Shared> {
    fn ring_bytes(&self) -> usize {
        self.ready.len() * LINE_BYTES
    }

    fn ready(&self, at: usize, order: Ordering) -> u32 {
        self.ready[at / LINE_BYTES].load(self.order_unless(Broken::ReadyOrder, order))
    }

    fn set_ready(&self, at: usize, ready: u32, order: Ordering) {
        let order = self.order_unless(Broken::ReadyOrder, order);
        self.ready[at / LINE_BYTES].store(ready, order);
    }

    fn write(&self, at: usize, header: &[u8; HEADER_BYTES], payload: &[u8]) {
        assert!(payload.is_empty());
        // SAFETY: loom passes the pointer of a live cell, and reports a concurrent access.
        self.rest[at / LINE_BYTES].with_mut(|rest| unsafe { *rest = header[4] });
    }

    fn read_header(&self, at: usize) -> [u8; HEADER_BYTES] {
        let mut header = [0; HEADER_BYTES];
        // SAFETY: as in `write`.
        header[4] = self.rest[at / LINE_BYTES].with(|rest| unsafe { *rest });
        header
    }

    fn payload(&self, _at: usize, payload_bytes: usize) -> &[u8] {
        assert_eq!(payload_bytes, 0);
        &[]
    }

    fn load_released(&self, order: Ordering) -> u64 {
        self.released.load(self.order_unless(Broken::ReleasedOrder, order))
    }

    fn set_released(&self, released: u64, order: Ordering) {
        self.released.store(released, self.order_unless(Broken::ReleasedOrder, order));
    }

    fn waiting(&self, side: Side, order: Ordering) -> u64 {
        self.word(side).load(order)
    }

    fn set_waiting(&self, side: Side, waiting: u64, order: Ordering) {
        self.word(side).store(waiting, order);
    }

    fn fence(&self) {
        if self.broken != Broken::Fences {
            fence(Ordering::SeqCst);
        }
    }
}

struct Bells {
    producer: Notify,
    consumer: Notify,
}

fn send(producer: &mut Producer<Arc<Shared>>, bells: &Bells, number: u8) {
    let mut header = [0; HEADER_BYTES];
    header[0] = 1;
    header[4] = number;
    loop {
        match producer.push(&header, &[]).expect("an honest consumer") {
            Push::Quiet => return,
            Push::Wake => return bells.consumer.notify(),
            Push::Full => {}
        }
        // As `ShmLink` does it.
        producer.arm();
        if !producer.has_room(record_bytes(0)).expect("an honest consumer") {
            bells.producer.wait();
        }
        producer.disarm();
    }
}

fn receive(consumer: &mut Consumer<Arc<Shared>>, bells: &Bells) -> u8 {
    loop {
        if let Some(header) = consumer.peek() {
            consumer.take(0);
            if consumer.release() {
                bells.producer.notify();
            }
            return header[4];
        }
        if consumer.announce() {
            bells.producer.notify();
        }
        consumer.arm();
        if !consumer.has_record() {
            bells.consumer.wait();
        }
        consumer.disarm();
    }
}

fn explore(preemptions_max: usize, body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(preemptions_max);
    model.check(body);
}

fn check(broken: Broken) {
    explore(2, move || {
        let shared = Shared::new(LINES, broken);
        let bells = Arc::new(Bells { producer: Notify::new(), consumer: Notify::new() });
        let mut producer = Producer::new(Arc::clone(&shared));
        let mut consumer = Consumer::new(shared);
        let reader_bells = Arc::clone(&bells);
        let reader = thread::spawn(move || {
            (1..=RECORDS).for_each(|number| {
                assert_eq!(receive(&mut consumer, &reader_bells), number);
            });
        });
        (1..=RECORDS).for_each(|number| send(&mut producer, &bells, number));
        reader.join().expect("the reader's own assertions hold");
    });
}

const HEADER: [u8; HEADER_BYTES] = [1; HEADER_BYTES];

/// One side provides what the other is about to sleep for: one of them has to notice. This checks
/// the same as above without sleeping, because a test can't expect loom to report a deadlock.
fn check_data_is_noticed(broken: Broken) {
    explore(2, move || {
        let shared = Shared::new(LINES, broken);
        let mut producer = Producer::new(Arc::clone(&shared));
        let mut consumer = Consumer::new(shared);
        let sleeper = thread::spawn(move || {
            consumer.arm();
            consumer.has_record()
        });
        let woken = producer.push(&HEADER, &[]) == Ok(Push::Wake);
        let seen = sleeper.join().expect("it asserts nothing");
        assert!(woken || seen, "the consumer sleeps for ever");
    });
}

fn check_room_is_noticed(broken: Broken) {
    explore(2, move || {
        let shared = Shared::new(LINES, broken);
        let mut producer = Producer::new(Arc::clone(&shared));
        let mut consumer = Consumer::new(shared);
        assert_eq!(producer.push(&HEADER, &[]), Ok(Push::Quiet));
        assert_eq!(producer.push(&HEADER, &[]), Ok(Push::Full));
        let sleeper = thread::spawn(move || {
            producer.arm();
            producer.has_room(record_bytes(0)) == Ok(true)
        });
        assert!(consumer.peek().is_some());
        consumer.take(0);
        let woken = consumer.release() || consumer.announce();
        let seen = sleeper.join().expect("it asserts nothing");
        assert!(woken || seen, "the producer sleeps for ever");
    });
}

#[test]
fn data_and_room_are_noticed() {
    check_data_is_noticed(Broken::Nothing);
    check_room_is_noticed(Broken::Nothing);
}

#[test]
#[should_panic(expected = "the consumer sleeps for ever")]
fn canary_without_fences_sleeps_through_data() {
    check_data_is_noticed(Broken::Fences);
}

#[test]
#[should_panic(expected = "the producer sleeps for ever")]
fn canary_without_fences_sleeps_through_room() {
    check_room_is_noticed(Broken::Fences);
}

#[test]
fn no_record_and_no_wake_up_is_lost() {
    check(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_without_publishing_order_reads_too_early() {
    check(Broken::ReadyOrder);
}

/// A full ring is written over while it is being emptied. It is large enough that a record is
/// released without a fence.
fn check_reuse(broken: Broken) {
    const LINES: usize = 8;
    explore(3, move || {
        let shared = Shared::new(LINES, broken);
        let mut producer = Producer::new(Arc::clone(&shared));
        let mut consumer = Consumer::new(shared);
        while producer.push(&HEADER, &[]) != Ok(Push::Full) {}
        let reader = thread::spawn(move || {
            for _ in 0..2 {
                assert!(consumer.peek().is_some());
                consumer.take(0);
                consumer.release();
            }
        });
        // These records overwrite those that the reader has just released.
        while producer.push(&HEADER, &[]) != Ok(Push::Full) {}
        reader.join().expect("the reader's own assertions hold");
    });
}

#[test]
fn no_record_is_written_over_while_it_is_read() {
    check_reuse(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_without_releasing_order_writes_too_early() {
    check_reuse(Broken::ReleasedOrder);
}
