//! Members, trees, aggregators and the manager: all that can happen, and what it does.

use tributary_failover::boundaries::{AfterAnnouncement, Announcement, Boundaries, Place};
use tributary_failover::settler::{Settler, Task};
use tributary_failover::{Action, Cut, Receivers, Segments, Standing, Step};
use tributary_wire::OperationNumber;

use super::links::{Links, Needs, Purpose};

pub(super) const MEMBERS: usize = 3;
const NODES: usize = 2;
/// Segments of each operation, and how many of them may be in flight.
const SEGMENTS: usize = 2;
const WINDOW: u16 = 1;
/// All numbers wrap.
const FIRST: OperationNumber = OperationNumber(u32::MAX);
/// Between two operations of a member: longer than the time between boundaries, so that there is one before each.
const OPERATION_NS: u64 = 10_000_000;

/// How much happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Bounds {
    /// Operations of the program.
    operations: u32,
    /// Deaths of aggregators.
    deaths: u8,
    /// Links between a member and its aggregator that are cut.
    cuts: u8,
    /// Trees that are granted, the first included where there is one at the beginning.
    trees: usize,
    receivers: To,
}

/// The members that get results.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum To {
    All,
    Member(usize),
}

/// A tree, the incarnation of the group at one aggregator.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Tree {
    node: usize,
    is_lost: bool,
    /// How far each member's contributions have come: operations, and segments of the next.
    contributed: [(u32, usize); MEMBERS],
}

/// What a result was computed by, which decides its bits: the tree with that number, a settlement, or links. None
/// is 0, so that "or" brings together what one member tells.
type Origin = u8;
const BY_TREE: Origin = 1;
const BY_SETTLEMENT: Origin = 0x40;
const BY_LINKS: Origin = 0x80;

/// How a member's operations go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Course {
    InTree(usize),
    Settling(Settler),
    OverLinks { boundaries: Boundaries, entering: Option<(usize, Place)> },
}

/// A member, in place: a result lies where the contribution was.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Member {
    completed: u32,
    is_started: bool,
    /// Segments of the present operation that it has contributed to.
    sent: usize,
    /// What it has of the present operation's result.
    has: [Option<Origin>; SEGMENTS],
    /// What it keeps of the operation that a tree completed last.
    kept: Option<[Option<Origin>; SEGMENTS]>,
    course: Course,
    /// Trees that it has lost.
    losses: u8,
}

/// All of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct System {
    bounds: Bounds,
    members: [Member; MEMBERS],
    links: Links,
    trees: Vec<Tree>,
    is_up: [bool; NODES],
    deaths: u8,
    cuts: u8,
    /// The tree that member 0 was granted, and has not told the others of; and how many operations it had completed.
    granted: Option<(usize, u32)>,
    /// What the first member to complete an operation had.
    agreed: Vec<[Option<Origin>; SEGMENTS]>,
}

/// Something that can happen.
#[derive(Clone, Copy, Debug)]
pub(super) enum Event {
    /// To aggregators and links.
    NodeDies(usize),
    NodeReturns(usize),
    LinkIsCut(usize),
    /// The manager grants member 0 a tree at an aggregator.
    Grant(usize),
    /// At a member.
    Starts(usize),
    Contributes(usize),
    GetsResult(usize, usize),
    FindsTreeLost(usize),
    IsCalled(usize),
    Joins(usize),
    EndsCollective(usize),
}

/// What was seen, so that no test can pass without having seen it.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Seen {
    supplied: u64,
    redone: u64,
    restarted: u64,
    way_back: u64,
    grants_in_vain: u64,
    lost_again: u64,
    lost_when_entered: u64,
}

impl Bounds {
    /// Seconds.
    #[cfg(not(feature = "planted-bugs"))]
    pub(super) const SHORT: Self =
        Self { operations: 3, deaths: 1, cuts: 1, trees: 2, receivers: To::All };
    /// As many operations as it takes to see that a grant is forgotten.
    #[cfg(feature = "planted-bugs")]
    pub(super) const PLANTED: Self =
        Self { operations: 4, deaths: 1, cuts: 0, trees: 2, receivers: To::All };
    #[cfg(not(feature = "planted-bugs"))]
    pub(super) const LONG: [Self; 4] = [
        Self { operations: 4, deaths: 1, cuts: 1, trees: 2, receivers: To::All },
        Self { operations: 4, deaths: 2, cuts: 0, trees: 2, receivers: To::All },
        Self { operations: 4, deaths: 1, cuts: 1, trees: 2, receivers: To::Member(0) },
        Self { operations: 4, deaths: 1, cuts: 1, trees: 2, receivers: To::Member(2) },
    ];
}

impl Seen {
    #[cfg(not(feature = "planted-bugs"))]
    pub(super) fn assert_way_back(&self) {
        assert!(self.way_back > 0 && self.lost_when_entered > 0, "{self:?}");
    }

    #[cfg(not(feature = "planted-bugs"))]
    pub(super) fn assert_all(&self) {
        let Self {
            supplied,
            redone,
            restarted,
            way_back,
            grants_in_vain,
            lost_again,
            lost_when_entered,
        } = *self;
        let all =
            [supplied, redone, restarted, way_back, grants_in_vain, lost_again, lost_when_entered];
        assert!(all.iter().all(|times| *times > 0), "{self:?}");
    }
}

impl Event {
    /// Whether it happens sooner or later once it can. Faults and grants may never come.
    pub(super) fn is_bound_to_happen(self) -> bool {
        !matches!(
            self,
            Self::NodeDies(_) | Self::NodeReturns(_) | Self::LinkIsCut(_) | Self::Grant(_)
        )
    }
}

impl Tree {
    fn new(node: usize) -> Self {
        Self { node, is_lost: false, contributed: [(0, 0); MEMBERS] }
    }

    fn has_result(&self, operation: u32, segment: usize) -> bool {
        self.contributed.iter().all(|it| *it > (operation, segment))
    }
}

impl Member {
    fn prefix(&self) -> usize {
        self.has.iter().position(Option::is_none).unwrap_or(SEGMENTS)
    }

    fn standing(&self) -> Standing {
        let prefix = self.prefix();
        let is_there = |segment| self.has.get(segment).is_some_and(Option::is_some);
        Standing {
            operation: number(self.completed),
            is_started: self.is_started,
            complete: Segments {
                prefix: prefix as u32,
                window: (prefix..prefix + usize::from(WINDOW)).map(is_there).collect(),
            },
        }
    }

    fn now_ns(&self) -> u64 {
        u64::from(self.completed) * OPERATION_NS
    }

    /// Its operation that has this number, if it knows it: the one under way, or what it keeps.
    fn knows(&self, operation: OperationNumber) -> bool {
        let is_under_way = self.is_started && number(self.completed) == operation;
        is_under_way || self.kept.is_some() && number(self.completed.wrapping_sub(1)) == operation
    }
}

fn number(operation: u32) -> OperationNumber {
    OperationNumber(FIRST.0.wrapping_add(operation))
}

fn tail() -> std::ops::Range<u32> {
    let cut =
        Cut { segment_bytes: 1, segments: SEGMENTS as u32, len_bytes: SEGMENTS, window: WINDOW };
    cut.tail()
}

impl System {
    pub(super) fn new(bounds: Bounds) -> Self {
        Self::begun(bounds, Course::InTree(0), vec![Tree::new(0)])
    }

    /// A group that was set up when there was no tree.
    #[cfg(not(feature = "planted-bugs"))]
    pub(super) fn without_tree(bounds: Bounds) -> Self {
        let course = Course::OverLinks { boundaries: Boundaries::new(0), entering: None };
        Self::begun(bounds, course, Vec::new())
    }

    fn begun(bounds: Bounds, course: Course, trees: Vec<Tree>) -> Self {
        let member = Member {
            completed: 0,
            is_started: false,
            sent: 0,
            has: [None; SEGMENTS],
            kept: None,
            course,
            losses: 0,
        };
        Self {
            bounds,
            members: std::array::from_fn(|_| member.clone()),
            links: Links::default(),
            trees,
            is_up: [true; NODES],
            deaths: 0,
            cuts: 0,
            granted: None,
            agreed: Vec::new(),
        }
    }

    /// Whether every member has completed all operations, and waits for nothing.
    pub(super) fn is_over(&self) -> bool {
        let is_over = |(index, member): (usize, &Member)| {
            member.completed == self.bounds.operations
                && !self.links.is_in(index)
                && !matches!(member.course, Course::Settling(_))
        };
        self.members.iter().enumerate().all(is_over)
    }

    /// What can happen now.
    pub(super) fn events(&self) -> Vec<Event> {
        let mut events = Vec::new();
        for node in 0..NODES {
            match self.is_up[node] {
                true if self.deaths < self.bounds.deaths => events.push(Event::NodeDies(node)),
                true => {}
                false => events.push(Event::NodeReturns(node)),
            }
            if self.is_up[node] && self.wants_tree() {
                events.push(Event::Grant(node));
            }
        }
        (0..MEMBERS).for_each(|index| self.events_at(index, &mut events));
        events
    }

    fn wants_tree(&self) -> bool {
        let first = &self.members[0];
        self.granted.is_none()
            && self.trees.len() < self.bounds.trees
            && matches!(first.course, Course::OverLinks { entering: None, .. })
    }

    fn events_at(&self, index: usize, events: &mut Vec<Event>) {
        let member = &self.members[index];
        if self.links.is_in(index) {
            if self.links.can_end(index) {
                events.push(Event::EndsCollective(index));
            }
        } else if !member.is_started && member.completed < self.bounds.operations {
            events.push(Event::Starts(index));
        }
        match &member.course {
            Course::InTree(tree) => {
                let tree = &self.trees[*tree];
                if tree.is_lost {
                    events.push(Event::FindsTreeLost(index));
                } else if self.cuts < self.bounds.cuts {
                    events.push(Event::LinkIsCut(index));
                }
                if self.links.is_called(index) {
                    events.push(Event::IsCalled(index));
                }
                let may_send = SEGMENTS.min(member.prefix() + usize::from(WINDOW));
                if member.is_started && member.sent < may_send {
                    events.push(Event::Contributes(index));
                }
                let is_due = |segment: &usize| {
                    member.has[*segment].is_none() && tree.has_result(member.completed, *segment)
                };
                let due = (0..member.sent).filter(is_due);
                events.extend(due.map(|segment| Event::GetsResult(index, segment)));
            }
            Course::OverLinks { entering: Some((_, Place::UnderWay)), .. } => {
                events.push(Event::Joins(index));
            }
            _ => {}
        }
    }

    /// Lets something happen.
    ///
    /// # Errors
    /// If it shows that something is wrong.
    pub(super) fn happen(&mut self, event: Event, seen: &mut Seen) -> Result<(), String> {
        match event {
            Event::NodeDies(node) => {
                (self.is_up[node], self.deaths) = (false, self.deaths + 1);
                let at_node = self.trees.iter_mut().filter(|tree| tree.node == node);
                at_node.for_each(|tree| tree.is_lost = true);
            }
            Event::NodeReturns(node) => self.is_up[node] = true,
            Event::LinkIsCut(index) => {
                self.cuts += 1;
                return self.lose_tree(index, seen);
            }
            Event::Grant(node) => {
                self.granted = Some((self.trees.len(), self.members[0].completed));
                self.trees.push(Tree::new(node));
            }
            Event::Starts(index) => return self.start(index),
            Event::Contributes(index) => self.contribute(index),
            Event::GetsResult(index, segment) => return self.get_result(index, segment),
            Event::FindsTreeLost(index) | Event::IsCalled(index) => {
                return self.lose_tree(index, seen);
            }
            Event::Joins(index) => {
                let member = &mut self.members[index];
                if let Course::OverLinks { entering: Some((tree, place)), .. } = &mut member.course
                {
                    let is_lost = self.trees[*tree].is_lost;
                    *place = if is_lost { Place::Failed } else { Place::Taken };
                }
            }
            Event::EndsCollective(index) => return self.end_collective(index, seen),
        }
        Ok(())
    }

    fn start(&mut self, index: usize) -> Result<(), String> {
        self.members[index].is_started = true;
        match self.members[index].course {
            Course::OverLinks { .. } => self.begin_over_links(index),
            _ => Ok(()),
        }
    }

    fn contribute(&mut self, index: usize) {
        let member = &mut self.members[index];
        member.sent += 1;
        if let Course::InTree(tree) = member.course
            && !self.trees[tree].is_lost
        {
            self.trees[tree].contributed[index] = (member.completed, member.sent);
        }
    }

    fn get_result(&mut self, index: usize, segment: usize) -> Result<(), String> {
        let member = &mut self.members[index];
        let Course::InTree(tree) = member.course else { unreachable!("results come from trees") };
        member.has[segment] = Some(BY_TREE + tree as Origin);
        if member.prefix() < SEGMENTS {
            return Ok(());
        }
        member.kept = Some(member.has);
        self.complete(index)
    }

    /// A member has all of an operation that it gets a result of.
    fn complete(&mut self, index: usize) -> Result<(), String> {
        let member = &mut self.members[index];
        let (operation, has) = (member.completed, member.has);
        if member.prefix() < SEGMENTS {
            return Err(format!("member {index} lacks some of operation {operation}"));
        }
        (member.completed, member.is_started) = (operation + 1, false);
        (member.sent, member.has) = (0, [None; SEGMENTS]);
        match self.agreed.get(operation as usize) {
            _ if !self.gets_results(index) => Ok(()),
            None => {
                self.agreed.push(has);
                Ok(())
            }
            Some(agreed) if *agreed == has => Ok(()),
            Some(agreed) => Err(format!("{agreed:?} elsewhere, {has:?} at member {index}")),
        }
    }

    fn gets_results(&self, index: usize) -> bool {
        matches!(self.bounds.receivers, To::All) || self.bounds.receivers == To::Member(index)
    }

    /// A member cuts itself off from its tree, and goes into the settlement.
    fn lose_tree(&mut self, index: usize, seen: &mut Seen) -> Result<(), String> {
        let member = &mut self.members[index];
        let Course::InTree(tree) = member.course else { unreachable!("only trees are lost") };
        // The aggregator tells the other members.
        self.trees[tree].is_lost = true;
        seen.lost_again += u64::from(member.losses > 0);
        member.losses += 1;
        member.course = Course::Settling(Settler::new(member.standing(), WINDOW));
        self.next_task(index, seen)
    }

    fn next_task(&mut self, index: usize, seen: &mut Seen) -> Result<(), String> {
        let Course::Settling(settler) = &mut self.members[index].course else {
            unreachable!("tasks are a settlement's")
        };
        match settler.poll_task() {
            Task::Call => self.links.begin(index, Purpose::Call, Needs::One(0), vec![]),
            Task::Exchange => {
                let bytes = settler.slot_bytes();
                let mut slots = vec![0; bytes * MEMBERS];
                settler.write_slot(&mut slots[index * bytes..][..bytes]);
                self.links.begin(index, Purpose::Standings, Needs::All, slots)
            }
            Task::Step(step) => self.begin_step(index, step, seen),
            Task::Over => self.go_over_links(index, seen),
        }
    }

    fn begin_step(&mut self, index: usize, step: Step, seen: &mut Seen) -> Result<(), String> {
        let member = &self.members[index];
        let Course::Settling(settler) = &member.course else {
            unreachable!("steps are a settlement's")
        };
        let is_behind = settler.is_behind();
        let segments = step.segments.start as usize..step.segments.end as usize;
        let mut bytes = vec![0; SEGMENTS];
        let needs = match step.action {
            Action::Supply { from } if from == index => {
                seen.supplied += 1;
                let is_kept = |segment: &usize| tail().contains(&(*segment as u32));
                for segment in segments {
                    let has = match is_behind {
                        true => member.has[segment],
                        false => {
                            member.kept.filter(|_| is_kept(&segment)).and_then(|it| it[segment])
                        }
                    };
                    bytes[segment] =
                        has.ok_or(format!("member {index} has no {segment} to supply"))?;
                }
                Needs::One(from)
            }
            Action::Supply { from } => Needs::One(from),
            Action::Redo => {
                seen.redone += 1;
                for segment in segments {
                    let is_read_only = !self.gets_results(index);
                    let is_there = match is_behind {
                        true => {
                            member.is_started && (is_read_only || member.has[segment].is_none())
                        }
                        false => {
                            is_read_only
                                && member.kept.is_some()
                                && tail().contains(&(segment as u32))
                        }
                    };
                    if !is_there {
                        return Err(format!(
                            "member {index} has no contribution to {segment} any more"
                        ));
                    }
                }
                Needs::All
            }
        };
        self.links.begin(index, Purpose::Step(step), needs, bytes)
    }

    fn end_step(&mut self, index: usize, step: &Step, bytes: &[u8]) {
        let member = &mut self.members[index];
        let Course::Settling(settler) = &member.course else {
            unreachable!("steps are a settlement's")
        };
        for segment in step.segments.clone().filter(|segment| settler.lacks(*segment)) {
            let segment = segment as usize;
            member.has[segment] = Some(match step.action {
                Action::Supply { .. } => bytes[segment],
                Action::Redo => BY_SETTLEMENT + member.losses,
            });
        }
    }

    /// All is settled: what is complete is, and the rest goes over links.
    fn go_over_links(&mut self, index: usize, seen: &mut Seen) -> Result<(), String> {
        let member = &mut self.members[index];
        let boundaries = Boundaries::new(member.now_ns());
        let over_links = Course::OverLinks { boundaries, entering: None };
        let Course::Settling(settler) = std::mem::replace(&mut member.course, over_links) else {
            unreachable!("it was settling")
        };
        member.kept = None;
        if settler.is_behind() {
            // A member that gets no result is done with what it was there for.
            if !self.gets_results(index) {
                self.members[index].has = [Some(BY_LINKS); SEGMENTS];
            }
            self.complete(index)
        } else if self.members[index].is_started {
            seen.restarted += 1;
            (self.members[index].sent, self.members[index].has) = (0, [None; SEGMENTS]);
            self.begin_over_links(index)
        } else {
            Ok(())
        }
    }

    /// An operation is about to start over links: goes to the boundary before it, if there is one.
    fn begin_over_links(&mut self, index: usize) -> Result<(), String> {
        let granted = self.granted;
        let member = &mut self.members[index];
        let now_ns = member.now_ns();
        let Course::OverLinks { boundaries, entering } = &mut member.course else {
            unreachable!("it goes over links")
        };
        let since = granted.filter(|_| index == 0).map(|(_, completed)| completed);
        if since.is_some_and(|since| member.completed > since + 1) {
            return Err("a boundary has passed, and the grant is still there".to_owned());
        }
        if !boundaries.on_operation() {
            return self.carry(index);
        }
        let mut bytes = Vec::new();
        if index == 0 {
            let has_grant = granted.is_some() && entering.is_none();
            bytes = boundaries.announcement(now_ns, u32::from(has_grant)).encode().to_vec();
        }
        self.links.begin(index, Purpose::Announcement, Needs::One(0), bytes)
    }

    fn carry(&mut self, index: usize) -> Result<(), String> {
        self.links.begin(index, Purpose::Operation, Needs::All, vec![])
    }

    fn end_collective(&mut self, index: usize, seen: &mut Seen) -> Result<(), String> {
        let (purpose, bytes) = self.links.end(index);
        match purpose {
            Purpose::Call => self.next_task(index, seen),
            Purpose::Standings => {
                let to = match self.bounds.receivers {
                    To::All => Receivers::All,
                    To::Member(member) => Receivers::Member(member),
                };
                let member = &mut self.members[index];
                let known: Vec<_> = (0..self.bounds.operations)
                    .map(number)
                    .filter(|operation| member.knows(*operation))
                    .collect();
                let whole = |operation| known.contains(&operation).then_some((SEGMENTS as u32, to));
                let Course::Settling(settler) = &mut member.course else {
                    unreachable!("standings are a settlement's")
                };
                settler.decide(&bytes, whole).map_err(|error| error.to_string())?;
                self.next_task(index, seen)
            }
            Purpose::Step(step) => {
                self.end_step(index, &step, &bytes);
                self.next_task(index, seen)
            }
            Purpose::Announcement => self.announced(index, &bytes),
            Purpose::Grant => {
                let tree = usize::from(bytes[0]);
                if let Course::OverLinks { entering, .. } = &mut self.members[index].course {
                    *entering = Some((tree, Place::UnderWay));
                }
                self.carry(index)
            }
            Purpose::Places => self.placed(index, Place::of_all(bytes[0]), seen),
            Purpose::Operation => {
                self.members[index].has = [Some(BY_LINKS); SEGMENTS];
                self.complete(index)
            }
        }
    }

    fn announced(&mut self, index: usize, bytes: &[u8]) -> Result<(), String> {
        let announcement = Announcement::decode(bytes.try_into().expect("it has its length"));
        let member = &mut self.members[index];
        let now_ns = member.now_ns();
        let Course::OverLinks { boundaries, entering } = &mut member.course else {
            unreachable!("boundaries are between operations over links")
        };
        match (boundaries.on_announced(now_ns, announcement, entering.is_some()), *entering) {
            (AfterAnnouncement::Places, Some((_, place))) => {
                self.links.begin(index, Purpose::Places, Needs::All, vec![place.bits()])
            }
            (AfterAnnouncement::Grant, _) => {
                let grant = if index == 0 { self.granted.take() } else { None };
                let bytes = grant.map_or(Vec::new(), |(tree, _)| vec![tree as u8]);
                self.links.begin(index, Purpose::Grant, Needs::One(0), bytes)
            }
            _ => self.carry(index),
        }
    }

    /// Every member has said how far it is.
    fn placed(&mut self, index: usize, all: Place, seen: &mut Seen) -> Result<(), String> {
        let member = &mut self.members[index];
        let Course::OverLinks { boundaries, entering } = &mut member.course else {
            unreachable!("places are taken over links")
        };
        let Some((tree, place)) = *entering else { unreachable!("all take a place, or nobody") };
        match all {
            Place::Taken => {
                seen.way_back += u64::from(index == 0);
                seen.lost_when_entered += u64::from(self.trees[tree].is_lost);
                member.course = Course::InTree(tree);
                self.trees[tree].contributed[index] = (member.completed, 0);
                Ok(())
            }
            Place::UnderWay => self.carry(index),
            Place::Failed => {
                seen.grants_in_vain += 1;
                *entering = None;
                boundaries.on_grant_failed();
                // A member that has a place gives it up, and the aggregator tells the others.
                self.trees[tree].is_lost |= place == Place::Taken;
                self.carry(index)
            }
        }
    }
}
