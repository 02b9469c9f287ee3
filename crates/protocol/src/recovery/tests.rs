//! Goal: when a request is repeated, and over what. Method: one lower end, with times set by hand.

use alloc::vec::Vec;

use tributary_wire::Sequence;
use tributary_wire::frame::RetransmitState;

use super::repeats::{REPEAT_NS_MAX, SILENT_REPEATS_MAX};
use super::*;

const RTT_NS: u64 = 1_000_000;
const SEGMENT_MAX_BYTES: u32 = 1000;

fn number(index: u32) -> Sequence {
    Sequence(Sequence::FIRST.0.wrapping_add(index))
}

/// An end whose only probe was answered after [`RTT_NS`], at time 0.
fn open() -> LowerEnd {
    let mut end = LowerEnd::new(4);
    end.on_offering(SEGMENT_MAX_BYTES);
    assert_eq!(end.on_answer(Time(0), NonZeroU16::new(9)), None);
    assert_eq!(end.probe(), Some(Message::Probe(0)));
    end.on_probe_sent(Time(0));
    assert_eq!(end.carrier(8), Carrier::Link, "until the probe is answered");
    end.on_datagram(Time(RTT_NS));
    assert_eq!(end.on_probed(Time(RTT_NS), 0), Some(Reachability::Reachable));
    assert_eq!(end.carrier(SEGMENT_MAX_BYTES as usize), Carrier::Datagram);
    assert_eq!(end.carrier(SEGMENT_MAX_BYTES as usize + 1), Carrier::Link, "too long");
    end
}

/// Fires the timer when it is due, and sends what is due then.
fn fire(end: &mut LowerEnd) -> (Time, Option<Repeat>) {
    let due = end.poll_timeout().expect("something is waited for");
    assert_eq!(end.handle_timeout(Time(due.0 - 1)), None);
    assert_eq!(end.next_repeat(), None, "not before it is due");
    end.handle_timeout(due);
    let repeat = end.next_repeat();
    if let Some(repeat) = repeat {
        end.on_repeated(due, repeat);
    }
    (due, repeat)
}

#[test]
fn probes_that_nobody_answers_close_the_way() {
    let mut end = LowerEnd::new(4);
    end.on_offering(SEGMENT_MAX_BYTES);
    end.on_answer(Time(0), NonZeroU16::new(9));
    let mut now = Time(0);
    for attempt in 0..PROBES_MAX {
        assert_eq!(end.probe(), Some(Message::Probe(attempt)));
        end.on_probe_sent(now);
        assert_eq!(end.probe(), None, "one at a time");
        now = end.poll_timeout().expect("an answer is waited for");
        let decided = end.handle_timeout(now);
        assert_eq!(decided, (attempt + 1 == PROBES_MAX).then_some(Reachability::Unreachable));
    }
    assert_eq!(now, Time(155_000_000));
    assert_eq!((end.carrier(8), end.poll_timeout()), (Carrier::Link, None));
    assert_eq!(end.on_probed(now, 4), None, "too late");
}

#[test]
fn a_parent_without_datagrams_says_so() {
    let mut end = LowerEnd::new(4);
    assert_eq!(end.on_answer(Time(0), NonZeroU16::new(9)), None, "nothing was offered");
    end.on_offering(SEGMENT_MAX_BYTES);
    assert_eq!(end.on_answer(Time(0), None), Some(Reachability::Unreachable));
    assert_eq!((end.carrier(8), end.probe()), (Carrier::Link, None));
}

#[test]
fn repeats_come_at_doubling_distances_and_a_late_sibling_costs_few() {
    let mut end = open();
    end.on_sent(Time(0), number(0));
    let mut before = 0;
    let mut gaps = Vec::new();
    for attempt in 1..=12 {
        let (at, repeat) = fire(&mut end);
        let carrier = Carrier::Datagram;
        assert_eq!(repeat, Some(Repeat { sequence: number(0), attempt, carrier }));
        end.on_datagram(at);
        end.on_ack(at, number(0), attempt);
        gaps.push(at.0 - before);
        before = at.0;
    }
    assert_eq!(gaps[0], 3 * RTT_NS, "RFC 6298, 2.2");
    for pair in gaps.windows(2) {
        assert_eq!(pair[1], (2 * pair[0]).min(REPEAT_NS_MAX));
    }
    assert_eq!(end.stats().acks, 12);
    assert_eq!(
        end.on_result(Time(before), Carrier::Datagram, number(0), RetransmitState::default()),
        None
    );
    assert_eq!((end.poll_timeout(), end.is_waiting()), (None, false), "no timer when idle");
}

#[test]
fn evidence_of_loss_hurries_a_request_once() {
    let mut end = open();
    for index in 0..4 {
        end.on_sent(Time(0), number(index));
    }
    let result = |end: &mut LowerEnd, index, behind| {
        end.on_result(
            Time(9),
            Carrier::Datagram,
            number(index),
            RetransmitState { attempt: 0, behind },
        );
    };
    result(&mut end, 3, 2);
    let repeat = end.next_repeat().expect("the result of 0 is there, and was lost");
    assert_eq!(repeat.sequence, number(0));
    end.on_repeated(Time(9), repeat);
    assert_eq!(end.next_repeat(), None, "1 and 2 are not complete at the parent");
    result(&mut end, 2, 1);
    assert_eq!(end.next_repeat(), None, "0 was repeated before");
    end.on_nack(number(1));
    assert_eq!(end.next_repeat().map(|it| it.sequence), Some(number(1)));
    end.on_nack(number(3));
    result(&mut end, 1, 0);
    assert_eq!(end.next_repeat(), None, "answered before it was repeated");
    assert_eq!(end.stats().fast_retransmits, 2);
}

#[test]
fn what_no_datagram_answers_goes_over_the_link_and_such_answers_close_the_way() {
    let mut end = open();
    // The request was acked once: silence counts from its beginning.
    end.on_sent(Time(2 * RTT_NS), number(0));
    for attempt in 1..=20 {
        let (at, _) = fire(&mut end);
        end.on_datagram(at.after_ns(1));
        end.on_ack(at.after_ns(1), number(0), attempt);
    }
    let (now, last) = repeat_until_by_link(&mut end);
    assert_eq!(last.attempt, 20 + 1 + SILENT_REPEATS_MAX + 1, "a datagram answered attempt 20");
    assert_eq!(end.poll_timeout(), None, "the link needs no timer");
    let retransmit = RetransmitState::default();
    assert_eq!(
        end.on_result(now, Carrier::Link, number(0), retransmit),
        None,
        "that may be chance"
    );
    end.on_sent(now, number(1));
    let (_, last) = repeat_until_by_link(&mut end);
    assert_eq!(last.attempt, SILENT_REPEATS_MAX + 1);
    end.on_sent(now, number(2));
    let decided = end.on_result(Time(1 << 41), Carrier::Link, number(1), retransmit);
    assert_eq!(decided, Some(Reachability::Unreachable));
    assert_eq!(end.carrier(8), Carrier::Link);
    let other = end.next_repeat().expect("what was under way as a datagram");
    assert_eq!((other.sequence, other.carrier), (number(2), Carrier::Link));
    end.on_repeated(now, other);
    assert_eq!((end.next_repeat(), end.poll_timeout()), (None, None));
}

fn repeat_until_by_link(end: &mut LowerEnd) -> (Time, Repeat) {
    loop {
        if let (at, Some(repeat)) = fire(end)
            && repeat.carrier == Carrier::Link
        {
            return (at, repeat);
        }
    }
}

#[test]
fn a_standstill_closes_nothing() {
    let mut end = open();
    end.on_sent(Time(2 * RTT_NS), number(0));
    end.on_sent(Time(2 * RTT_NS), number(1));
    while let Some(due) = end.poll_timeout() {
        end.handle_timeout(due);
        while let Some(repeat) = end.next_repeat() {
            end.on_repeated(due, repeat);
        }
    }
    assert_eq!(end.stats().by_link, 2);
    for index in [0, 1] {
        // The parent goes on, and polls the link first.
        let (now, retransmit) = (Time(1 << 41), RetransmitState::default());
        assert_eq!(end.on_result(now, Carrier::Link, number(index), retransmit), None);
        assert_eq!(end.carrier(8), Carrier::Datagram);
    }
    end.on_datagram(Time(1 << 41));
    end.on_sent(Time(1 << 42), number(2));
    repeat_until_by_link(&mut end);
    let decided =
        end.on_result(Time(1 << 43), Carrier::Link, number(2), RetransmitState::default());
    assert_eq!(decided, None, "a datagram came between");
}
