//! The hosts, what is under way between them, and what is checked.

use std::collections::BTreeMap;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_replicated::{ASK_AFTER_NS, Call, Datagram, Failure, Levels, Message, Place, Step};

use super::host::{Arrival, Host, Life, Verdict};
use super::oracle;
use super::scenario::{FateKind, Scenario};
use super::states::{
    CONTRIBUTION, DEATH, DISAGREEMENT, LEAVE, PASSED, SEVERAL_LEVELS, STANDS_IN, STATE_NAMES, SUM,
};
use super::violation::Violation;
use crate::trace::Trace;

/// Within which time a host that waits has its sum, or hears why not, once all others have done their part.
const PROMISE_NS: u64 = 1_000_000_000;
/// More than any run takes in which everybody hears in time.
const HORIZON_NS: u64 = 200_000_000_000;
/// More than any run takes that comes to rest.
const STEPS_MAX: u64 = 2_000_000;
/// Up to how long a program takes to free what has failed.
const CLEAN_UP_NS: u64 = 50_000_000;

/// What happens at a time.
#[derive(Clone, Copy, Debug)]
enum Item {
    /// A host's program comes to its next operation.
    Go {
        host: u32,
    },
    Datagram {
        to: u32,
        arrival: Arrival,
    },
    Said {
        from: u32,
        to: u32,
        said: Said,
    },
    /// The link from one host to another has ended there.
    Closed {
        from: u32,
        to: u32,
    },
    Timer {
        host: u32,
    },
    Dies {
        host: u32,
    },
    /// The program frees what has failed.
    CleanedUp {
        host: u32,
    },
}

/// What goes over links.
#[derive(Clone, Copy, Debug)]
enum Said {
    InGroup { tag: u32, message: Message, payload: Option<u64> },
    Verdict(Verdict),
}

/// One direction of a link: nothing is lost or overtaken, until its sender dies.
#[derive(Clone, Copy, Debug, Default)]
struct Link {
    /// When the last message arrives.
    last_ns: u64,
    /// From when on nothing arrives any more.
    cut_ns: Option<u64>,
}

pub(super) struct System<'a> {
    scenario: &'a Scenario,
    pub(super) trace: Trace,
    pub(super) steps: u64,
    pub(super) states: [u64; STATE_NAMES.len()],
    pub(super) violation: Option<Violation>,
    now_ns: u64,
    random: Pcg64,
    agenda: BTreeMap<(u64, u64), Item>,
    entries: u64,
    hosts: Vec<Host>,
    /// By sender, then by receiver.
    links: Vec<Vec<Link>>,
    /// When a host last died, left or failed, so that others may have to hear of it.
    last_loss_ns: u64,
    /// By operation: when the last host began it.
    last_begun_ns: Vec<u64>,
}

impl<'a> System<'a> {
    pub(super) fn new(scenario: &'a Scenario, keeps_trace: bool) -> Self {
        let hosts = scenario.plan.hosts();
        let host = |host| {
            let levels = Levels::new(&scenario.plan, host, ASK_AFTER_NS);
            Host::new(levels.expect("plans are drawn whose groups are served"))
        };
        let mut system = Self {
            scenario,
            trace: Trace::new(keeps_trace),
            steps: 0,
            states: [0; STATE_NAMES.len()],
            violation: None,
            now_ns: 0,
            random: Pcg64::seed_from_u64(!scenario.seed),
            agenda: BTreeMap::new(),
            entries: 0,
            hosts: (0..hosts).map(host).collect(),
            links: vec![vec![Link::default(); hosts as usize]; hosts as usize],
            last_loss_ns: 0,
            last_begun_ns: vec![0; scenario.operations as usize],
        };
        for host in 0..hosts {
            system.think(host);
        }
        system
    }

    pub(super) fn run(&mut self) {
        while self.violation.is_none() {
            let Some(((at_ns, _), item)) = self.agenda.pop_first() else { break };
            if at_ns > HORIZON_NS || self.steps > STEPS_MAX {
                break;
            }
            (self.now_ns, self.steps) = (at_ns, self.steps + 1);
            self.handle(item);
        }
        if self.violation.is_none() {
            self.check_over();
        }
    }

    pub(super) fn completions(&self) -> u64 {
        self.hosts.iter().map(|host| host.completed).sum()
    }

    fn put(&mut self, at_ns: u64, item: Item) {
        self.entries += 1;
        self.agenda.insert((at_ns, self.entries), item);
    }

    fn host(&mut self, host: u32) -> &mut Host {
        &mut self.hosts[host as usize]
    }

    fn note(&mut self, host: u32, text: impl FnOnce() -> String) {
        self.trace.note_number(self.now_ns ^ u64::from(host) << 56);
        self.trace.note(self.now_ns, || format!("host {host}: {}", text()));
    }

    fn handle(&mut self, item: Item) {
        match item {
            Item::Go { host } => self.go(host),
            Item::Datagram { to, arrival } => self.receive(to, arrival),
            Item::Said { from, to, said } => self.hear(from, to, said),
            Item::Closed { from, to } => {
                if self.host(to).is_there() {
                    self.note(to, || format!("its link to {from} has ended"));
                    self.host(to).levels.handle_link_closed(from);
                    self.act(to);
                }
            }
            Item::Timer { host } => self.tick(host),
            Item::Dies { host } => self.die(host),
            Item::CleanedUp { host } => self.end(host),
        }
    }

    /// The program computes until its next operation.
    fn think(&mut self, host: u32) {
        let operation = self.host(host).begun;
        let computes = self.scenario.fates_at(host, operation).find_map(|kind| match kind {
            FateKind::Computes { for_ns } => Some(for_ns),
            _ => None,
        });
        let think_ns = self.random.random_range(1..=self.scenario.think_ns_max);
        self.put(self.now_ns + computes.unwrap_or(0) + think_ns, Item::Go { host });
    }

    /// The program begins its next operation, or leaves.
    fn go(&mut self, host: u32) {
        let (scenario, now_ns) = (self.scenario, self.now_ns);
        if !self.host(host).is_there() {
            return;
        }
        let operation = self.host(host).begun;
        let leaves_early = scenario.fates_at(host, operation).any(|kind| kind == FateKind::Leaves);
        if operation == scenario.operations || leaves_early {
            return self.leave(host);
        }
        for kind in scenario.fates_at(host, operation) {
            if let FateKind::Dies { after_ns } = kind {
                self.put(now_ns + after_ns, Item::Dies { host });
            }
        }
        let call = Call { kind: scenario.kind(host, operation), len_bytes: scenario.len_bytes };
        self.note(host, || format!("begins operation {operation}, {call:?}"));
        self.last_begun_ns[operation as usize] = now_ns;
        let value = oracle::value(scenario, host, operation);
        let own = self.host(host);
        own.begun += 1;
        own.waits_since = Some(now_ns);
        own.contribute(0, Some(value));
        own.levels.begin(call, now_ns).expect("one operation at a time, and it has not failed");
        self.act(host);
        self.take_datagrams(host);
    }

    fn leave(&mut self, host: u32) {
        self.note(host, || "leaves".to_owned());
        let is_early = self.host(host).begun < self.scenario.operations;
        if is_early {
            let is_waiting = |other: &Host| other.is_there() && other.waits_since.is_some();
            self.states[LEAVE] += u64::from(self.hosts.iter().any(is_waiting));
            self.last_loss_ns = self.now_ns;
        }
        let own = self.host(host);
        own.life = Life::Leaves;
        own.levels.leave();
        self.act(host);
    }

    fn receive(&mut self, to: u32, arrival: Arrival) {
        let host = self.host(to);
        if !host.is_there() {
            return;
        }
        host.hold(arrival);
        if host.waits_since.is_some() {
            self.take_datagrams(to);
        }
    }

    fn take_datagrams(&mut self, host: u32) {
        let own = self.host(host);
        if own.is_there() && own.waits_since.is_some() {
            own.take_held();
            self.act(host);
        }
    }

    fn hear(&mut self, from: u32, to: u32, said: Said) {
        let link = self.links[from as usize][to as usize];
        let is_cut = link.cut_ns.is_some_and(|cut_ns| self.now_ns > cut_ns);
        if is_cut || !self.host(to).is_there() {
            return;
        }
        match said {
            Said::InGroup { tag, message, payload } => {
                self.note(to, || format!("hears from {from} in group {tag:#x}: {message:?}"));
                if self.host(to).take_message(from, tag, message, payload) {
                    match message {
                        Message::Contribution { .. } => self.states[CONTRIBUTION] += 1,
                        Message::Passed { .. } => self.states[PASSED] += 1,
                        _ => self.states[SUM] += 1,
                    }
                }
                self.act(to);
            }
            Said::Verdict(verdict) => self.fail(to, verdict),
        }
    }

    fn tick(&mut self, host: u32) {
        let now_ns = self.now_ns;
        let round_trip_ns = 2 * self.scenario.delay_ns_max;
        let own = self.host(host);
        if own.timer_at == Some(now_ns) && own.is_there() {
            own.timer_at = None;
            own.levels.set_round_trip(round_trip_ns);
            own.levels.handle_timer(now_ns);
            self.act(host);
        }
    }

    /// Does what a host's machine says.
    fn act(&mut self, host: u32) {
        let now_ns = self.now_ns;
        while self.host(host).is_there() && self.violation.is_none() {
            let Some(step) = self.host(host).levels.poll(now_ns) else { break };
            self.take_step(host, step);
        }
        let own = self.host(host);
        if !own.is_there() {
            return;
        }
        if own.life == Life::Leaves && own.levels.may_end() {
            return self.end(host);
        }
        if let Some(due_ns) = own.levels.next_timer_ns() {
            let at_ns = due_ns.max(now_ns + 1);
            if own.timer_at.replace(at_ns) != Some(at_ns) {
                self.put(at_ns, Item::Timer { host });
            }
        }
    }

    fn take_step(&mut self, host: u32, step: Step) {
        match step {
            Step::Send { group, datagram, payload, previous } => {
                self.send(host, group, datagram, (payload, previous));
            }
            // A failure is said to the members of all groups.
            Step::Tell { message: Message::Failed { .. }, .. } => {}
            Step::Tell { group, to, message, payload } => {
                let own = self.host(host);
                let payload = payload.map(|place| own.load(group, place));
                let known = &own.levels.groups()[group];
                let (to, tag) = (known.host(to), known.tag());
                if payload == Some(None) {
                    return self.report(Violation::Empty { host });
                }
                let said = Said::InGroup { tag, message, payload: payload.flatten() };
                self.say(host, to, said);
            }
            Step::Fold { group, place } => self.host(host).fold(group, place),
            Step::Raise { group, place, to } => {
                let own = self.host(host);
                let sum = own.load(group, Place::Sum { place });
                own.contribute(to, sum);
            }
            Step::Completed { group, place } => {
                let sum = self.host(host).load(group, Place::Sum { place });
                self.complete(host, sum);
            }
            Step::Failed { group, operation, failure } => {
                let verdict = self.verdict(host, group, operation, failure);
                self.fail(host, verdict);
            }
        }
    }

    /// What a failure of a group means. All its members name the first, and the first that called otherwise.
    fn verdict(&mut self, host: u32, group: usize, operation: u64, failure: Failure) -> Verdict {
        let scenario = self.scenario;
        let group = &self.host(host).levels.groups()[group];
        let (one, other) = match failure {
            Failure::Dead(member) => return Verdict::Gone(group.host(member)),
            Failure::Disagreement(one, other) => (group.host(one), group.host(other)),
        };
        let first = group.hosts()[0];
        let differs = |it: &&u32| scenario.kind(**it, operation) != scenario.kind(first, operation);
        if one != first || Some(&other) != group.hosts().iter().find(differs) {
            let named = format!("{one} and {other}");
            self.report(Violation::Misnamed { host, operation, named });
        }
        Verdict::Disagreement { hosts: [one, other], operation }
    }

    fn send(
        &mut self,
        host: u32,
        group: usize,
        datagram: Datagram,
        (payload, previous): (Place, Option<Place>),
    ) {
        let own = self.host(host);
        let (payload, previous) =
            (own.load(group, payload), previous.and_then(|place| own.load(group, place)));
        let known = &own.levels.groups()[group];
        let (tag, hosts) = (known.tag(), known.hosts().to_vec());
        let Some(payload) = payload else { return self.report(Violation::Empty { host }) };
        let arrival = Arrival { from: host, tag, datagram, payload, previous };
        for to in hosts.into_iter().filter(|to| *to != host) {
            let copies = 1 + u32::from(self.random.random_bool(self.scenario.doubled));
            for _ in 0..copies {
                let more_ns = if self.random.random_ratio(1, 30) { 3_000_000 } else { 0 };
                let delay_ns = self.random.random_range(1..=self.scenario.delay_ns_max + more_ns);
                let at_ns = self.now_ns + delay_ns;
                let is_lost = self.random.random_bool(self.scenario.loss);
                if !is_lost && !self.scenario.is_silent(to, at_ns) {
                    self.put(at_ns, Item::Datagram { to, arrival });
                }
            }
        }
    }

    fn say(&mut self, from: u32, to: u32, said: Said) {
        let delay_ns = self.random.random_range(1..=self.scenario.delay_ns_max);
        let link = &mut self.links[from as usize][to as usize];
        link.last_ns = (link.last_ns + 1).max(self.now_ns + delay_ns);
        let at_ns = link.last_ns;
        self.put(at_ns, Item::Said { from, to, said });
    }

    fn complete(&mut self, host: u32, sum: Option<u64>) {
        let operation = self.host(host).completed;
        self.note(host, || format!("has the sum of operation {operation}"));
        if sum != Some(oracle::sum(self.scenario, operation)) {
            return self.report(Violation::WrongResult { host, operation });
        }
        self.check_promise(host);
        let levels = &self.host(host).levels;
        let stands_in = (0..levels.count()).any(|level| levels.of_level(level).len() > 1);
        let is_over_several = levels.count() > 1;
        self.states[STANDS_IN] += u64::from(stands_in);
        self.states[SEVERAL_LEVELS] += u64::from(is_over_several);
        let own = self.host(host);
        own.completed += 1;
        own.waits_since = None;
        self.think(host);
    }

    /// A host fails, and tells all others of its groups.
    fn fail(&mut self, host: u32, verdict: Verdict) {
        self.note(host, || format!("fails: {verdict:?}"));
        self.check_cause(host, verdict);
        self.check_promise(host);
        let own = self.host(host);
        own.levels.give_up();
        own.verdict = Some(verdict);
        own.waits_since = None;
        for to in own.others(host) {
            self.say(host, to, Said::Verdict(verdict));
        }
        self.last_loss_ns = self.now_ns;
        let after_ns = self.random.random_range(1..=CLEAN_UP_NS);
        self.put(self.now_ns + after_ns, Item::CleanedUp { host });
    }

    fn die(&mut self, host: u32) {
        if matches!(self.host(host).life, Life::Ended | Life::Dead) {
            return;
        }
        self.note(host, || "dies".to_owned());
        self.states[DEATH] += u64::from(self.host(host).waits_since.is_some());
        let own = self.host(host);
        own.life = Life::Dead;
        own.waits_since = None;
        self.last_loss_ns = self.now_ns;
        for to in self.host(host).others(host) {
            let link = &mut self.links[host as usize][to as usize];
            // What was under way may be lost from some message on.
            let last_ns = link.last_ns.max(self.now_ns + 1);
            let cut_ns = self.random.random_range(self.now_ns..=last_ns);
            link.cut_ns = Some(cut_ns);
            self.put(cut_ns + 1, Item::Closed { from: host, to });
        }
    }

    /// A host's process ends its links in order: all that it has said arrives.
    fn end(&mut self, host: u32) {
        if matches!(self.host(host).life, Life::Ended | Life::Dead) {
            return;
        }
        self.note(host, || "ends".to_owned());
        let scenario = self.scenario;
        let own = self.host(host);
        own.life = Life::Ended;
        if own.completed < scenario.operations {
            self.last_loss_ns = self.now_ns;
        }
        for to in self.host(host).others(host) {
            let link = self.links[host as usize][to as usize];
            let at_ns = link.last_ns.max(self.now_ns) + 1;
            self.put(at_ns, Item::Closed { from: host, to });
        }
    }

    /// The hosts that a verdict names must have done what it says.
    fn check_cause(&mut self, host: u32, verdict: Verdict) {
        let scenario = self.scenario;
        let is_right = match verdict {
            Verdict::Gone(of) => {
                let of = &self.hosts[of as usize];
                let is_early = of.begun < scenario.operations && of.verdict.is_none();
                of.life == Life::Dead || of.life != Life::Runs && is_early
            }
            Verdict::Disagreement { hosts: [one, other], operation } => {
                self.states[DISAGREEMENT] += 1;
                scenario.kind(one, operation) != scenario.kind(other, operation)
            }
        };
        if !is_right {
            let operation = self.host(host).completed;
            self.report(Violation::Misnamed { host, operation, named: format!("{verdict:?}") });
        }
    }

    /// A wait ends soon after the last of the others has come to the operation, or is lost.
    fn check_promise(&mut self, host: u32) {
        let Some(since_ns) = self.host(host).waits_since else { return };
        let operation = self.host(host).completed;
        let begun_ns = self.last_begun_ns[operation as usize];
        let due_ns = since_ns.max(begun_ns).max(self.last_loss_ns);
        let late_ns = self.now_ns.saturating_sub(due_ns);
        if late_ns > PROMISE_NS {
            self.report(Violation::Late { host, operation, late_ns });
        }
    }

    fn check_over(&mut self) {
        for host in 0..self.hosts.len() as u32 {
            let own = self.host(host);
            if !matches!(own.life, Life::Ended | Life::Dead) {
                let completed = own.completed;
                return self.report(Violation::Stuck { host, completed });
            }
        }
    }

    fn report(&mut self, violation: Violation) {
        self.trace.note(self.now_ns, || format!("VIOLATION: {violation}"));
        self.violation.get_or_insert(violation);
    }
}
