//! Goal: a host that waits to be called by another gets the call, or hears that nobody will. Method: every order of the other's coming, leaving and dying, of calls, rings and
//! what is said over them, and of time.
//!
//! What the waiting host decides is the product's `Contact`. Connections are modelled: what travels over one keeps its
//! order, two overtake each other. Time goes on in steps, and only when nothing is under way: a call takes less than the
//! patience behind the end of a ring.

use std::collections::{HashSet, VecDeque};

use tributary_waits::contact::{Contact, Next};

const STEP_NS: u64 = 100_000_000;
/// Within so many steps of the other's end the waiting host must hear of it.
const STEPS_MAX: u64 = 10;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Pair {
    steps: u64,
    other: Other,
    has_called: bool,
    /// When it died or left.
    gone_at: Option<u64>,
    call: Travel,
    ring: Travel,
    /// What the other says over the ring, under way and arrived.
    saying: VecDeque<Word>,
    said: VecDeque<Word>,
    waiting: Contact,
    end: Option<End>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Other {
    Late,
    Here,
    Left,
    Dead,
}

/// A connection's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Travel {
    Not,
    UnderWay,
    There,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Word {
    Leave,
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum End {
    Linked,
    GaveUp,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    OtherComes,
    OtherLeaves,
    OtherDies,
    CallArrives,
    RingArrives,
    WordArrives,
    Polls,
    TimePasses,
}

impl Pair {
    fn new() -> Self {
        Self {
            steps: 0,
            other: Other::Late,
            has_called: false,
            gone_at: None,
            call: Travel::Not,
            ring: Travel::Not,
            saying: VecDeque::new(),
            said: VecDeque::new(),
            waiting: Contact::new(1, 0),
            end: None,
        }
    }

    fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        if self.end.is_some() {
            return events;
        }
        if self.other == Other::Late {
            events.push(Event::OtherComes);
        }
        if self.gone_at.is_none() {
            events.extend([Event::OtherLeaves, Event::OtherDies]);
        }
        let is_under_way =
            [self.call, self.ring].contains(&Travel::UnderWay) || !self.saying.is_empty();
        let under_way = [
            (self.call == Travel::UnderWay, Event::CallArrives),
            (self.ring == Travel::UnderWay, Event::RingArrives),
            (!self.saying.is_empty(), Event::WordArrives),
            (true, Event::Polls),
            (!is_under_way && self.steps < 3 * STEPS_MAX, Event::TimePasses),
        ];
        events.extend(under_way.into_iter().filter_map(|(can, event)| can.then_some(event)));
        events
    }

    fn happen(&mut self, event: Event) -> Result<(), String> {
        match event {
            Event::OtherComes => {
                (self.other, self.has_called, self.call) = (Other::Here, true, Travel::UnderWay);
            }
            Event::OtherLeaves => {
                if self.ring == Travel::There {
                    self.saying.extend([Word::Leave, Word::End]);
                }
                (self.other, self.gone_at) = (Other::Left, Some(self.steps));
            }
            Event::OtherDies => {
                if self.ring == Travel::There {
                    self.saying.push_back(Word::End);
                }
                (self.other, self.gone_at) = (Other::Dead, Some(self.steps));
            }
            Event::CallArrives => self.call = Travel::There,
            Event::RingArrives => {
                self.ring = Travel::There;
                if self.gone_at.is_some() {
                    self.saying.push_back(Word::End);
                }
            }
            Event::WordArrives => self.said.extend(self.saying.pop_front()),
            Event::Polls => return self.poll(),
            Event::TimePasses => {
                self.steps += 1;
                self.poll()?;
                let is_late = self.gone_at.is_some_and(|at| self.steps > at + STEPS_MAX);
                if self.end.is_none() && is_late {
                    return Err("a second has passed, and the host still waits".to_owned());
                }
            }
        }
        Ok(())
    }

    /// The waiting host looks, as `inter-host::direct` does.
    fn poll(&mut self) -> Result<(), String> {
        if self.call == Travel::There {
            self.waiting.on_called(1);
            self.end = Some(End::Linked);
            return Ok(());
        }
        let now_ns = self.steps * STEP_NS;
        match self.waiting.poll_next(now_ns) {
            Next::Call => return Err("the other was to call".to_owned()),
            Next::Ring => {
                self.ring = Travel::UnderWay;
                self.waiting.on_rung();
            }
            Next::Wait | Next::GiveUp => match self.said.pop_front() {
                Some(Word::Leave) => self.waiting.on_left(now_ns),
                Some(Word::End) => self.waiting.on_ring_ended(now_ns),
                None => {}
            },
        }
        if self.waiting.is_over(now_ns) {
            self.end = Some(End::GaveUp);
            let is_due = self.gone_at.is_none() || self.other == Other::Left && self.has_called;
            if is_due {
                return Err("the host gave up, and was called".to_owned());
            }
        }
        Ok(())
    }
}

/// Goes through all states; the ends that were come to, or what is wrong.
fn explore() -> Result<HashSet<(Other, End)>, String> {
    let mut known = HashSet::from([Pair::new()]);
    let mut open = vec![(Pair::new(), Vec::new())];
    let mut ends = HashSet::new();
    while let Some((pair, story)) = open.pop() {
        ends.extend(pair.end.map(|end| (pair.other, end)));
        for event in pair.events() {
            let mut next = pair.clone();
            let story: Vec<Event> = story.iter().copied().chain([event]).collect();
            next.happen(event).map_err(|fault| format!("{fault}: {story:?}"))?;
            if known.insert(next.clone()) {
                open.push((next, story));
            }
        }
    }
    Ok(ends)
}

#[cfg(not(feature = "planted-bugs"))]
#[test]
fn a_host_that_waits_for_a_call_gets_it_or_hears_that_nobody_will() {
    let ends = explore().unwrap_or_else(|story| panic!("{story}"));
    let all = [
        (Other::Here, End::Linked),
        (Other::Left, End::Linked),
        (Other::Left, End::GaveUp),
        (Other::Dead, End::Linked),
        (Other::Dead, End::GaveUp),
    ];
    assert_eq!(ends, HashSet::from(all));
}

#[cfg(feature = "planted-bugs")]
#[test]
fn planted_bugs_are_found() {
    use tributary_failover::planted::{Bug, plant};
    for bug in [Bug::NeverRung, Bug::LeaveForgotten] {
        plant(Some(bug));
        println!("{bug:?}: {}", explore().expect_err("it is found"));
    }
    plant(None);
}
