//! The protocols of the segment under the model checker: every interleaving of two ranks.
//!
//! Goal: no slot is read while it is written, and no rank sleeps through what it waits for. Method:
//! the steps of `Rings` (claim, fill, publish, await, read, finish) and of its sleeping, written
//! again on loom's atomics and cells, with as few slots as a ring can have. They are kept beside
//! the code by hand, so each names what it stands for. Canaries leave out one thing each and must
//! fail.

use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use loom::thread;

/// What a canary leaves out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Broken {
    Nothing,
    /// The flag's Release and Acquire.
    FlagOrder,
    /// The counter's Release and Acquire.
    DoneOrder,
    /// Looking at the counters before a slot is filled again.
    Claim,
    /// Leaving the own box alone once it is published.
    OwnBox,
    /// The fences between publishing and looking for sleepers, and the other way round.
    Fences,
}

/// A slot or a box: the flag, and one word of payload.
struct Slot {
    flag: AtomicU64,
    payload: UnsafeCell<u64>,
}

impl Slot {
    fn new() -> Self {
        Self { flag: AtomicU64::new(0), payload: UnsafeCell::new(0) }
    }

    /// `own_slot` and `publish`.
    fn publish(&self, step: u64, value: u64, broken: Broken) {
        // SAFETY: loom hands out the pointer of a live cell and reports any access at the same time.
        self.payload.with_mut(|payload| unsafe { *payload = value });
        let order = if broken == Broken::FlagOrder { Ordering::Relaxed } else { Ordering::Release };
        self.flag.store(step, order);
    }

    /// `is_filled`, until it is.
    fn wait(&self, step: u64, broken: Broken) {
        let order = if broken == Broken::FlagOrder { Ordering::Relaxed } else { Ordering::Acquire };
        while self.flag.load(order) != step {
            thread::yield_now();
        }
    }

    /// `slot`.
    fn read(&self) -> u64 {
        // SAFETY: as in `publish`.
        self.payload.with(|payload| unsafe { *payload })
    }
}

fn explore(body: impl Fn() + Send + Sync + 'static) {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(3);
    model.check(body);
}

/// Value of `rank` in `step`.
fn value(rank: usize, step: u64) -> u64 {
    10 * step + rank as u64
}

/// `HostGroup::trade_and_reduce` at one rank.
fn trade(boxes: &[Slot; 2], rank: usize, steps: u64, broken: Broken) {
    for step in 1..=steps {
        let mine = (rank + step as usize) & 1;
        boxes[mine].publish(step, value(rank, step), broken);
        boxes[1 - mine].wait(step, broken);
        assert_eq!(boxes[1 - mine].read(), value(1 - rank, step));
        if broken == Broken::OwnBox {
            assert_eq!(boxes[mine].read(), value(rank, step));
        }
    }
}

fn check_trade(broken: Broken) {
    explore(move || {
        let boxes = Arc::new([Slot::new(), Slot::new()]);
        let other = Arc::clone(&boxes);
        let peer = thread::spawn(move || trade(&other, 1, 3, broken));
        trade(&boxes, 0, 3, broken);
        peer.join().expect("the peer's own assertions hold");
    });
}

#[test]
fn traded_boxes_are_never_read_and_written_at_once() {
    check_trade(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_flags_without_order_tear_a_box() {
    check_trade(Broken::FlagOrder);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_a_rank_that_reads_its_own_box_races_with_the_peer() {
    check_trade(Broken::OwnBox);
}

const SLOTS: u64 = 2;

/// A ring of one sender and the counter of one reader.
struct Ring {
    slots: [Slot; SLOTS as usize],
    done: AtomicU64,
    broken: Broken,
}

impl Ring {
    fn slot(&self, step: u64) -> &Slot {
        &self.slots[(step % SLOTS) as usize]
    }

    /// `claim` and `claim_by_counters`, until there is room. `cleared` as in `Place`.
    fn claim(&self, step: u64, cleared: &mut u64) {
        if *cleared + SLOTS >= step || self.broken == Broken::Claim {
            return;
        }
        let relaxed = self.broken == Broken::DoneOrder;
        let order = if relaxed { Ordering::Relaxed } else { Ordering::Acquire };
        loop {
            *cleared = self.done.load(order);
            if *cleared >= step - SLOTS / 2 {
                return;
            }
            thread::yield_now();
        }
    }

    /// `finish` at the reader.
    fn finish(&self, step: u64) {
        let relaxed = self.broken == Broken::DoneOrder;
        self.done.store(step, if relaxed { Ordering::Relaxed } else { Ordering::Release });
    }
}

fn check_one_way(broken: Broken) {
    explore(move || {
        let ring =
            Arc::new(Ring { slots: [Slot::new(), Slot::new()], done: AtomicU64::new(0), broken });
        let senders = Arc::clone(&ring);
        let sender = thread::spawn(move || {
            let mut cleared = 0;
            for step in 1..=SLOTS + 2 {
                senders.claim(step, &mut cleared);
                senders.slot(step).publish(step, value(0, step), broken);
            }
        });
        for step in 1..=SLOTS + 2 {
            let slot = ring.slot(step);
            if broken == Broken::Claim && slot.flag.load(Ordering::Acquire) > step {
                // The real reader would wait for ever; what matters is that it can come to this.
                panic!("Causality violation: step {step} was overwritten before it was read");
            }
            slot.wait(step, broken);
            assert_eq!(slot.read(), value(0, step));
            ring.finish(step);
        }
        sender.join().expect("the sender asserts nothing");
    });
}

#[test]
fn slots_are_never_filled_again_before_they_were_read() {
    check_one_way(Broken::Nothing);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_counters_without_order_let_a_slot_be_overwritten() {
    check_one_way(Broken::DoneOrder);
}

#[test]
#[should_panic(expected = "Causality violation")]
fn canary_filling_without_a_claim_overwrites_a_slot() {
    check_one_way(Broken::Claim);
}

/// `sleep` against `publish` and `wake_sleepers`: the publisher rings, or the sleeper sees the flag
/// before it sleeps, or the bell that it sleeps on has changed by then.
fn check_sleep(broken: Broken) {
    explore(move || {
        let shared = Arc::new((AtomicU64::new(0), AtomicU32::new(0), AtomicU32::new(0)));
        let theirs = Arc::clone(&shared);
        let sleeper = thread::spawn(move || {
            let (flag, sleepers, bell) = &*theirs;
            let heard = bell.load(Ordering::Acquire);
            // The real one is SeqCst; loom treats that as AcqRel, so the fence is what counts.
            sleepers.fetch_add(1, Ordering::SeqCst);
            if broken != Broken::Fences {
                fence(Ordering::SeqCst);
            }
            (flag.load(Ordering::Acquire) == 1, heard)
        });
        let (flag, sleepers, bell) = &*shared;
        flag.store(1, Ordering::Release);
        if broken != Broken::Fences {
            fence(Ordering::SeqCst);
        }
        let rings = sleepers.load(Ordering::Relaxed) != 0;
        if rings {
            bell.fetch_add(1, Ordering::Release);
        }
        let (seen, heard) = sleeper.join().expect("it asserts nothing");
        // A rung bell wakes: the sleeper heard the value before, or it came after the ring, and
        // then the Acquire of the bell made it see the flag.
        let wakes = rings && heard == 0;
        assert!(seen || wakes, "a rank sleeps through its peer's publication");
    });
}

#[test]
fn no_rank_sleeps_through_a_publication() {
    check_sleep(Broken::Nothing);
}

#[test]
#[should_panic(expected = "sleeps through")]
fn canary_without_fences_a_rank_sleeps_through_a_publication() {
    check_sleep(Broken::Fences);
}
