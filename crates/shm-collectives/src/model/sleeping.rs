//! Sleeping on a rank's doorbell, and being woken. That nobody sleeps for ever in a whole operation
//! is what the models of three ranks say: a lost wake-up ends them as a deadlock. Here it is asked
//! about, so that it can also be found missing.

use loom::thread;

use super::member::members;
use super::ring::{Awaited, AwaitedEvent};
use super::segment::LINE_RING;
use super::sync::{Broken, explore};
use super::waiting::{PEER_CHECK_INTERVAL, Policy};

/// One rank publishes and finishes a step while another is about to sleep for one of the two.
fn check(broken: Broken, event: AwaitedEvent) {
    explore(broken, 3, move || {
        let [sleeper, mut publisher] = <[_; 2]>::try_from(members(2, Policy::Sleep))
            .unwrap_or_else(|_| unreachable!("two were asked for"));
        let awaited = Awaited { peer: 1, ring: LINE_RING, step: 1, event };
        let segment = sleeper.group.rings.segment.clone();
        let sleeper = thread::spawn(move || {
            sleeper.group.rings.sleep(awaited, PEER_CHECK_INTERVAL);
        });
        publisher.group.rings.publish(LINE_RING, 0);
        publisher.group.rings.finish(LINE_RING, true);
        segment.control(1).doorbell.end();
        sleeper.join().expect("it asserts nothing");
        assert_eq!(
            segment.control(1).doorbell.asleep(),
            0,
            "a rank sleeps through what it waits for"
        );
    });
}

#[test]
fn no_rank_sleeps_through_what_it_waits_for() {
    check(Broken::Nothing, AwaitedEvent::Filled);
    check(Broken::Nothing, AwaitedEvent::Done);
}

#[test]
#[should_panic(expected = "sleeps through")]
fn canary_without_fences_a_rank_sleeps_through_a_step() {
    check(Broken::Fences, AwaitedEvent::Done);
}
