//! Any order of events leaves the OSO accounts right.
//!
//! The test plays the aggregators and keeps its own accounts from the orders alone. An aggregator has what it
//! was told to install until it was told to remove it, or reported its end.

use super::*;
use alloc::collections::BTreeSet;
use proptest::prelude::*;
use tributary_wire::Epoch;

const LEAVES: u16 = 3;
const CAPACITY: u32 = 12;
const TIMEOUT_NS: u64 = 50;

#[derive(Clone, Debug)]
enum Action {
    Admit,
    EndJob(usize),
    Request {
        job: usize,
        hosts: Vec<u8>,
        osos: u16,
    },
    /// The oldest unanswered install of an aggregator is answered.
    Answer {
        node: usize,
        accept: bool,
    },
    Fail {
        node: usize,
        which: usize,
    },
    End {
        node: usize,
        which: usize,
    },
    Kill(usize),
    Revive(usize),
    Wait(u64),
}

fn step() -> impl Strategy<Value = Action> {
    let node = 0..=usize::from(LEAVES);
    prop_oneof![
        2 => Just(Action::Admit),
        1 => (0_usize..4).prop_map(Action::EndJob),
        6 => (0_usize..4, prop::collection::vec(0_u8..14, 1..8), 1_u16..6)
            .prop_map(|(job, hosts, osos)| Action::Request { job, hosts, osos }),
        16 => (node.clone(), prop::bool::weighted(0.9))
            .prop_map(|(node, accept)| Action::Answer { node, accept }),
        1 => (node.clone(), 0_usize..4).prop_map(|(node, which)| Action::Fail { node, which }),
        4 => (node.clone(), 0_usize..4).prop_map(|(node, which)| Action::End { node, which }),
        1 => node.clone().prop_map(Action::Kill),
        2 => node.prop_map(Action::Revive),
        2 => (0_u64..40).prop_map(Action::Wait),
    ]
}

/// What the test knows of one aggregator.
#[derive(Default)]
struct Played {
    /// OSOs of each group it was told to install.
    holds: BTreeMap<(GroupId, Epoch), u16>,
    unanswered: VecDeque<GroupInstall>,
    installed: BTreeSet<(GroupId, Epoch)>,
}

struct World {
    site: Site,
    played: BTreeMap<NodeId, Played>,
    jobs: Vec<JobAdmission>,
    tickets: BTreeSet<RequestTicket>,
    /// All output, to compare two runs.
    trace: String,
}

impl World {
    fn new() -> Self {
        let config = ManagerConfig {
            install_timeout_ns: TIMEOUT_NS,
            jobs_max: 4,
            groups_max: 6,
            ..ManagerConfig::default()
        };
        let site = Site::new(config, LEAVES, 8, CAPACITY);
        let played = site.node.values().map(|node| (*node, Played::default())).collect();
        Self { site, played, jobs: Vec::new(), tickets: BTreeSet::new(), trace: String::new() }
    }

    fn name(index: usize) -> String {
        index.checked_sub(1).map_or("root".into(), |leaf| format!("leaf{leaf}"))
    }

    fn step(&mut self, step: &Action) {
        match step {
            Action::Admit => {
                if self.jobs.len() < 4 {
                    let job = self.site.job();
                    self.jobs.push(job);
                }
            }
            Action::EndJob(which) => {
                if *which < self.jobs.len() {
                    let job = self.jobs.remove(*which);
                    self.site.manager.handle_lease_closed(job.job);
                }
            }
            Action::Request { job, hosts, osos } => self.request(*job, hosts, *osos),
            Action::Answer { node, accept } => self.answer(*node, *accept),
            Action::Fail { node, which } => self.finish(*node, *which, true),
            Action::End { node, which } => self.finish(*node, *which, false),
            Action::Kill(index) => {
                if let Some(node) = self.site.node.remove(&Self::name(*index)) {
                    self.played.remove(&node);
                    self.site.manager.handle_node_gone(node);
                }
            }
            Action::Revive(index) => {
                let name = Self::name(*index);
                if !self.site.node.contains_key(&name) {
                    let node = self.site.manager.register_node(registration(&name, 8, CAPACITY));
                    let node = node.unwrap();
                    self.site.node.insert(name, node);
                    self.played.insert(node, Played::default());
                }
            }
            Action::Wait(ns) => {
                self.site.now = self.site.now.after_ns(*ns);
                self.site.manager.handle_timeout(self.site.now);
                let next = self.site.manager.poll_timeout();
                assert!(next.is_none_or(|due| due > self.site.now));
            }
        }
        self.site.drain();
        self.obey();
    }

    fn request(&mut self, job: usize, hosts: &[u8], osos: u16) {
        let Some(job) = self.jobs.get(job).cloned() else { return };
        let hosts: Vec<String> = hosts.iter().map(|host| format!("h{host}")).collect();
        let hosts: Vec<&str> = hosts.iter().map(String::as_str).collect();
        let before = self.site.used();
        match self.site.request(&job, &hosts, osos) {
            Ok(ticket) => assert!(self.tickets.insert(ticket)),
            Err(error) => {
                self.trace.push_str(&format!("{error}\n"));
                assert_eq!(before, self.site.used(), "a refusal disturbs nothing");
            }
        }
    }

    fn answer(&mut self, index: usize, accept: bool) {
        let Some(&node) = self.site.node.get(&Self::name(index)) else { return };
        let played = self.played.get_mut(&node).unwrap();
        let Some(install) = played.unanswered.pop_front() else { return };
        let key = (install.group, install.epoch);
        if accept {
            if played.holds.contains_key(&key) {
                played.installed.insert(key);
            }
            self.site.report(node, installed(&install));
        } else {
            played.holds.remove(&key);
            self.site.report(node, refused(&install));
        }
    }

    fn finish(&mut self, index: usize, which: usize, fail: bool) {
        let Some(&node) = self.site.node.get(&Self::name(index)) else { return };
        let played = self.played.get_mut(&node).unwrap();
        let Some(&(group, epoch)) = played.installed.iter().nth(which) else { return };
        if fail {
            self.site.report(node, NodeEvent::Failed { group, epoch, reason: "lost".into() });
            return;
        }
        // A group that is not granted has no member that could leave.
        let granted =
            self.site.manager.status(Time(0)).groups.iter().any(|live| live.epoch == epoch);
        if granted {
            played.installed.remove(&(group, epoch));
            played.holds.remove(&(group, epoch));
            self.site.report(node, NodeEvent::Ended { group, epoch });
        }
    }

    /// Aggregators take their orders.
    fn obey(&mut self) {
        while let Some((node, order)) = self.site.orders.pop_front() {
            self.trace.push_str(&format!("{node} {order:?}\n"));
            let played = self.played.get_mut(&node).expect("dead nodes get no orders");
            match order {
                NodeOrder::Install(install) => {
                    assert!(
                        played.holds.keys().all(|(group, _)| *group != install.group),
                        "group {} is given away while node {node} has it",
                        install.group
                    );
                    played.holds.insert((install.group, install.epoch), install.osos);
                    played.unanswered.push_back(install);
                }
                NodeOrder::Remove { group, epoch } => {
                    played.holds.remove(&(group, epoch));
                    played.installed.remove(&(group, epoch));
                }
                NodeOrder::Registered { .. } | NodeOrder::Tick => {}
            }
        }
        for (ticket, decision) in core::mem::take(&mut self.site.decisions) {
            self.trace.push_str(&format!("{ticket:?} {decision:?}\n"));
            assert!(self.tickets.remove(&ticket), "only requests are decided, and once");
        }
    }

    fn check(&self) {
        let status = self.site.manager.status(Time(0));
        for node in &status.nodes {
            let holds: u32 =
                self.played[&node.node].holds.values().map(|osos| u32::from(*osos)).sum();
            assert!(node.osos_used <= CAPACITY);
            assert!(
                holds <= node.osos_used,
                "{} holds more than is booked",
                node.registration.name
            );
            if self.tickets.is_empty() {
                assert_eq!(holds, node.osos_used, "{}", node.registration.name);
            }
        }
        let requested: u32 = status.jobs.iter().map(|job| job.groups).sum();
        assert_eq!(requested as usize, status.groups.len() + self.tickets.len());
    }

    fn finish_all(&mut self) {
        for job in core::mem::take(&mut self.jobs) {
            self.site.manager.handle_lease_closed(job.job);
        }
        self.site.drain();
        self.obey();
        self.check();
        assert!(self.tickets.is_empty(), "every request is decided");
        assert_eq!(self.site.used_in_all(), 0);
        assert!(self.played.values().all(|played| played.holds.is_empty()));
        assert_eq!(self.site.manager.poll_timeout(), None);
    }
}

fn run(steps: &[Action]) -> String {
    let mut world = World::new();
    for step in steps {
        world.step(step);
        world.check();
    }
    world.finish_all();
    let stats = *world.site.manager.stats();
    format!("{}{stats:?}", world.trace)
}

proptest! {
    #[test]
    fn the_books_balance_and_equal_inputs_give_equal_outputs(
        steps in prop::collection::vec(step(), 1..160)
    ) {
        let first = run(&steps);
        prop_assert_eq!(first, run(&steps));
    }
}
