//! All machines of a scenario with their drivers, and virtual time.

mod transit;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use tributary_protocol::{Carrier, Time};

use super::agenda::{Agenda, End, Item};
use super::clocks::Clock;
use super::datagram_store::Datagrams;
use super::fault_record::{FaultRecord, Key};
use super::job::{JobRun, Run};
use super::leader::Communicator;
use super::link::{EdgeOf, Holder, Link};
use super::manager_host::{ManagerHost, Session};
use super::member::Member;
use super::node_host::NodeHost;
use super::scenario::{FAULT_NAMES, Scenario};
use super::timeouts::OVERDUE_NS;
use super::trace::Trace;
use super::verdict::{Finding, Violation};

/// More events than any scenario needs. A run that reaches it is stuck in a loop.
const STEPS_MAX: u64 = 4_000_000;

/// A frame that has arrived, by link or datagram.
#[derive(Clone, Copy)]
pub(super) struct Incoming<'a> {
    pub(super) link: u32,
    pub(super) to: End,
    pub(super) carrier: Carrier,
    pub(super) bytes: &'a [u8],
    /// Whether it must be refused.
    pub(super) is_forged: bool,
}

/// Machines that are cut off from the others.
#[derive(Clone, Copy)]
pub(super) struct Partition {
    /// One bit each.
    pub(super) machines: u64,
    pub(super) until: u64,
    /// Whether what the others send still reaches them.
    pub(super) is_one_way: bool,
}

pub(super) struct World<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) now: u64,
    pub(super) agenda: Agenda,
    pub(super) random: Pcg64,
    pub(super) trace: Trace,
    pub(super) finding: Option<Finding>,
    pub(super) manager: ManagerHost,
    pub(super) sessions: Vec<Session>,
    pub(super) nodes: Vec<NodeHost>,
    pub(super) jobs: Vec<JobRun>,
    pub(super) runs: Vec<Run>,
    pub(super) members: Vec<Member>,
    pub(super) communicators: Vec<Communicator>,
    pub(super) links: Vec<Link>,
    pub(super) fault_record: FaultRecord,
    pub(super) partition: Option<Partition>,
    /// By machine.
    clocks: Vec<Clock>,
    /// Machines whose output must be taken after the present step.
    pub(super) restless_nodes: Vec<u32>,
    pub(super) restless_members: Vec<u32>,
    pub(super) steps: u64,
    pub(super) frames: u64,
    /// Operations complete at a member; of these over direct links; and trees gone back into.
    pub(super) completions: u64,
    pub(super) completions_over_links: u64,
    pub(super) trees_regained: u64,
    pub(super) segments_in_kernel: u64,
    /// Faults that hit a target, by kind.
    pub(super) hits: [u64; FAULT_NAMES.len()],
    pub(super) datagrams: Datagrams,
    /// Buffers of frames that have arrived.
    spare: Vec<Vec<u8>>,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, keeps_trace: bool) -> Self {
        let mut world = Self {
            scenario,
            now: 0,
            agenda: Agenda::default(),
            random: Pcg64::seed_from_u64(!scenario.seed),
            trace: Trace::new(keeps_trace),
            finding: None,
            manager: ManagerHost::new(scenario),
            sessions: Vec::new(),
            nodes: scenario.new_nodes().collect(),
            jobs: scenario.jobs.iter().map(JobRun::new).collect(),
            runs: Vec::new(),
            members: Vec::new(),
            communicators: Vec::new(),
            links: Vec::new(),
            fault_record: FaultRecord::default(),
            partition: None,
            clocks: scenario.clocks.iter().map(|plan| Clock::new(*plan)).collect(),
            restless_nodes: Vec::new(),
            restless_members: Vec::new(),
            steps: 0,
            frames: 0,
            completions: 0,
            completions_over_links: 0,
            trees_regained: 0,
            segments_in_kernel: 0,
            hits: [0; FAULT_NAMES.len()],
            datagrams: Datagrams::default(),
            spare: Vec::new(),
        };
        world.put_beginnings();
        world
    }

    fn put_beginnings(&mut self) {
        for node in 0..self.nodes.len() as u32 {
            self.equip(node);
            let at = self.delay_ns();
            self.agenda.put(at, Item::Register { node, life: 0 });
        }
        let scenario = self.scenario;
        for (job, plan) in scenario.jobs.iter().enumerate() {
            // Aggregators have registered by then.
            let at = plan.starts_at + 2 * scenario.network.delay_ns_max;
            self.agenda.put(at, Item::Admit { job: job as u32 });
        }
        for (index, fault) in scenario.faults.iter().enumerate() {
            self.agenda.put(fault.at, Item::Fault { index: index as u32 });
        }
    }

    /// Runs until all is quiet, serves the probe job, and checks that nothing is left.
    pub(super) fn run(&mut self) {
        self.run_until_quiet();
        self.check_quiet();
        if self.finding.is_some() {
            return;
        }
        self.trace.note(self.now, None, || "all is quiet; the probe starts".to_owned());
        self.jobs.push(JobRun::new(&self.scenario.probe));
        let at = self.now + self.scenario.network.delay_ns_max;
        self.agenda.put(at, Item::Admit { job: self.jobs.len() as u32 - 1 });
        self.run_until_quiet();
        self.check_quiet();
        self.check_probe();
        self.check_leftovers();
    }

    fn run_until_quiet(&mut self) {
        while self.finding.is_none() {
            let Some((at, item)) = self.agenda.pop() else { return };
            debug_assert!(at >= self.now, "time never goes back");
            self.now = at;
            self.steps += 1;
            if self.steps > STEPS_MAX {
                self.report(None, Violation::Restless { steps: STEPS_MAX });
            }
            self.handle(item);
            self.settle();
        }
    }

    fn handle(&mut self, item: Item) {
        match item {
            Item::Arrive { link, to } => self.arrive(link, to),
            Item::Datagram { link, to, place } => self.datagram_arrives(link, to, place),
            Item::MemberTimer { member } => self.on_member_timer(member),
            Item::LinkSilent { link, end } => self.give_up(link, end),
            Item::LinkOverdue { link, end } => self.on_overdue(link, end),
            Item::NodeTimer { node, life } => self.on_node_timer(node, life),
            Item::Removals { node, life } => self.on_removals(node, life),
            Item::Register { node, life } => self.on_register(node, life),
            Item::Order { node, session } => self.on_order(node, session),
            Item::Report { node, session } => self.on_report(node, session),
            Item::SessionOver { node, session, at_manager } => {
                self.on_session_over(node, session, at_manager);
            }
            Item::Connected { node, session } => self.on_connected(node, session),
            Item::NodeStarts { node } => self.start_node(node),
            Item::ManagerStarts => self.start_manager(),
            Item::ManagerTimer { life } => self.on_manager_timer(life),
            Item::Admit { job } => self.on_admit(job),
            Item::Admitted { job, life } => self.on_admitted(job, life),
            Item::LeaseOver { job, lease, life } => self.on_lease_over(job, lease, life),
            Item::GroupRequest { job, group } => self.on_group_request(job, group),
            Item::Request { job, group, life } => self.on_request(job, group, life),
            Item::Decision { job, group, attempt } => self.on_decision(job, group, attempt),
            Item::JobEnds { job } => self.end_doomed(job),
            Item::Connect { member } => self.connect_member(member),
            Item::Start { member } => self.start_operation(member),
            Item::Ready { member } => self.on_ready(member),
            Item::Multicast { listener, place } => self.multicast_arrives(listener, place),
            Item::Stray { group, place } => self.stray_arrives(group, place),
            Item::Hear { from, to } => self.hear(from, to),
            Item::Alarm { to, epoch } => self.on_alarm(to, epoch),
            Item::LeaderStart { leader } => self.on_leader_start(leader),
            Item::LeaderReady { leader } => self.on_leader_ready(leader),
            Item::Leave { member } => self.leave(member),
            Item::Fault { index } => self.inject(index),
            Item::PartitionSilent { index } => self.on_partition_silent(index),
        }
    }

    /// Takes the output of all machines that this step affected.
    fn settle(&mut self) {
        loop {
            if let Some(node) = self.restless_nodes.pop() {
                self.pump_node(node);
            } else if let Some(member) = self.restless_members.pop() {
                self.pump_member(member);
            } else {
                return;
            }
        }
    }

    /// What a machine's clock shows.
    pub(super) fn time_at(&self, machine: u32) -> Time {
        self.clocks[machine as usize].at(self.now)
    }

    /// When a driver on a machine wakes that now goes to sleep until its clock shows `due`.
    pub(super) fn wakes_at(&self, machine: u32, due: Time) -> u64 {
        self.clocks[machine as usize].wakes_at(self.now, due)
    }

    pub(super) fn jump_clock(&mut self, machine: u32, by_ns: i64) {
        self.clocks[machine as usize].jump(by_ns);
    }

    /// How long a message takes.
    pub(super) fn delay_ns(&mut self) -> u64 {
        self.random.random_range(1..=self.scenario.network.delay_ns_max)
    }

    /// How long a member takes between two steps.
    pub(super) fn think_ns(&mut self) -> u64 {
        self.random.random_range(1..=self.scenario.network.think_ns_max)
    }

    /// Reports a violation. The first one ends the run.
    pub(super) fn report(&mut self, group: Option<Key>, violation: Violation) {
        self.trace.note(self.now, group, || format!("VIOLATION: {violation}"));
        if self.finding.is_none() {
            self.finding = Some(Finding { at_ns: self.now, group, violation });
        }
    }

    /// Until when two machines are cut off from each other, in one direction at least. They can
    /// open no connection then.
    pub(super) fn apart_until(&self, one: u32, other: u32) -> Option<u64> {
        self.cut_until(one, other).max(self.cut_until(other, one))
    }

    /// Until when nothing from one machine reaches the other.
    pub(super) fn cut_until(&self, from: u32, to: u32) -> Option<u64> {
        let Partition { machines, until, is_one_way } = self.partition?;
        let [is_from, is_to] = [from, to].map(|machine| machines >> machine & 1 == 1);
        let is_cut = is_from && !is_to || !is_one_way && !is_from && is_to;
        (is_cut && self.now < until).then_some(until)
    }

    pub(super) fn node_machine(&self, node: u32) -> u32 {
        self.scenario.hosts + node
    }

    pub(super) fn manager_machine(&self) -> u32 {
        self.scenario.hosts + self.scenario.nodes.len() as u32
    }

    pub(super) fn link(&mut self, link: u32) -> &mut Link {
        &mut self.links[link as usize]
    }

    pub(super) fn edge_key(&self, link: u32) -> Option<Key> {
        self.links[link as usize].edge.as_ref().map(|edge| edge.group)
    }

    /// A new link up to an aggregator.
    pub(super) fn connect(
        &mut self,
        lower: (Holder, u32),
        upper: u32,
        edge: Option<EdgeOf>,
    ) -> u32 {
        let link = self.links.len() as u32;
        let port = self.nodes[upper as usize].plug(link, End::Upper);
        let upper = (Holder::Node { node: upper, port }, self.node_machine(upper));
        self.links.push(Link::new(lower, upper, edge));
        let at = self.now + OVERDUE_NS;
        self.agenda.put(at, Item::LinkOverdue { link, end: End::Upper });
        link
    }

    /// A buffer for one frame.
    pub(super) fn buffer(&mut self) -> Vec<u8> {
        self.spare.pop().unwrap_or_default()
    }
}
