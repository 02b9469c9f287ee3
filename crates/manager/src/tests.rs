//! Tests of the manager. They play its aggregators and jobs.

mod adoption;
mod random;
mod stories;
mod tenants;
mod waits;

use alloc::collections::{BTreeMap, VecDeque};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;

use tributary_topology::{Fabric, two_level};
use tributary_wire::control::{
    GroupGrant, GroupInstall, GroupRequest, JobAdmission, JobRequest, NodeAddress, NodeEvent,
    NodeOrder, NodeRegistration, StreamCapacity,
};
use tributary_wire::frame::Versions;
use tributary_wire::{GroupId, NodeId, StreamTerms};

use super::{AdmitError, Caller, GroupError, Manager, ManagerConfig, RequestTicket};
use tributary_protocol::Time;

pub(super) const STREAMS: StreamCapacity =
    StreamCapacity { trees: 2, terms_max: StreamTerms { chunk_bytes: 1 << 16, window: 8 } };

pub(super) const SEED: [u8; 32] = [7; 32];

/// All managers of a test belong to one operator.
pub(super) const PLACE_KEY: [u8; 32] = [3; 32];

pub(super) fn registration(name: &str, radix: u16, osos: u32) -> NodeRegistration {
    NodeRegistration {
        name: name.into(),
        address: NodeAddress {
            tcp: format!("{name}:1"),
            machine: format!("{name}.machine"),
            shm: None,
        },
        radix,
        osos,
        payload_max_bytes: 4096,
        frame_versions: Versions::SPOKEN,
        stream: Some(STREAMS),
        kernel: None,
    }
}

/// Hosts `h0`, `h1`, … in blocks below `leaves` leaves.
pub(super) fn fabric(leaves: u16, hosts: usize) -> Fabric {
    let hosts: Vec<String> = (0..hosts).map(|index| format!("h{index}")).collect();
    two_level(leaves, &hosts).unwrap()
}

/// A manager, its aggregators' open orders, and its decisions.
pub(super) struct Site {
    pub(super) manager: Manager,
    pub(super) now: Time,
    pub(super) node: BTreeMap<String, NodeId>,
    pub(super) orders: VecDeque<(NodeId, NodeOrder)>,
    pub(super) decisions: BTreeMap<RequestTicket, Result<GroupGrant, GroupError>>,
}

impl Site {
    /// `root`, `leaf0`, `leaf1`, … each with that radix and number of OSOs; four hosts per leaf.
    pub(super) fn new(config: ManagerConfig, leaves: u16, radix: u16, osos: u32) -> Self {
        let manager = Manager::new(config, fabric(leaves, usize::from(leaves) * 4), SEED)
            .with_place_keys([PLACE_KEY].into());
        let mut site = Self {
            manager,
            now: Time(0),
            node: BTreeMap::new(),
            orders: VecDeque::new(),
            decisions: BTreeMap::new(),
        };
        site.register("root", radix, osos);
        for leaf in 0..leaves {
            site.register(&format!("leaf{leaf}"), radix, osos);
        }
        site
    }

    pub(super) fn register(&mut self, name: &str, radix: u16, osos: u32) {
        let node = self.manager.register_node(registration(name, radix, osos)).unwrap();
        self.node.insert(name.to_string(), node);
        assert_eq!(self.manager.poll_order(), Some((node, NodeOrder::Registered { node })));
        self.drain();
    }

    pub(super) fn job(&mut self) -> JobAdmission {
        self.job_of(&Caller::Operator).unwrap()
    }

    pub(super) fn job_of(&mut self, owner: &Caller) -> Result<JobAdmission, AdmitError> {
        self.manager.admit_job(owner, JobRequest { name: "job".into(), processes: 8, resume: None })
    }

    pub(super) fn request(
        &mut self,
        job: &JobAdmission,
        hosts: &[&str],
        osos: u16,
    ) -> Result<RequestTicket, GroupError> {
        // A job that is not there is refused to every caller.
        let owner = self.manager.jobs.iter().find(|(number, _)| *number == job.job);
        let owner = owner.map(|(_, job)| job.owner.clone()).unwrap_or_default();
        self.request_as(&owner, job, hosts, osos)
    }

    pub(super) fn request_as(
        &mut self,
        caller: &Caller,
        job: &JobAdmission,
        hosts: &[&str],
        osos: u16,
    ) -> Result<RequestTicket, GroupError> {
        let request = GroupRequest {
            secret: job.secret,
            label: "world".into(),
            hosts: hosts.iter().map(|host| host.to_string()).collect(),
            frame_versions: Versions::SPOKEN,
            osos,
            payload_max_bytes: 1024,
            stream: Some(StreamTerms { chunk_bytes: 1 << 20, window: 4 }),
            external_receiver: false,
        };
        let ticket = self.manager.request_group(self.now, caller, job.job, &request);
        self.drain();
        ticket
    }

    /// Requests a group, and lets every aggregator install it.
    pub(super) fn grant(&mut self, job: &JobAdmission, hosts: &[&str], osos: u16) -> GroupGrant {
        let ticket = self.request(job, hosts, osos).unwrap();
        self.install_all();
        self.decisions.remove(&ticket).expect("every node answered").unwrap()
    }

    pub(super) fn install_all(&mut self) {
        while let Some((node, install)) = self.take_install() {
            self.report(node, installed(&install));
        }
    }

    /// The next install ordered from an aggregator; drops other orders before it.
    pub(super) fn take_install(&mut self) -> Option<(NodeId, GroupInstall)> {
        loop {
            match self.orders.pop_front()? {
                (node, NodeOrder::Install(install)) => return Some((node, install)),
                _ => continue,
            }
        }
    }

    /// Which aggregators are ordered to remove which group; drops other orders.
    pub(super) fn take_removals(&mut self) -> Vec<(NodeId, GroupId)> {
        self.orders
            .drain(..)
            .filter_map(|(node, order)| match order {
                NodeOrder::Remove { group, .. } => Some((node, group)),
                _ => None,
            })
            .collect()
    }

    pub(super) fn report(&mut self, node: NodeId, event: NodeEvent) {
        self.manager.handle_node_event(self.now, node, event).unwrap();
        self.drain();
    }

    pub(super) fn drain(&mut self) {
        while let Some(order) = self.manager.poll_order() {
            self.orders.push_back(order);
        }
        while let Some((ticket, decision)) = self.manager.poll_decision() {
            assert!(self.decisions.insert(ticket, decision).is_none(), "decided twice");
        }
    }

    /// OSOs in use, by aggregator name.
    pub(super) fn used(&self) -> BTreeMap<String, u32> {
        let nodes = self.manager.status(Time(0)).nodes;
        nodes.into_iter().map(|node| (node.registration.name, node.osos_used)).collect()
    }

    pub(super) fn used_in_all(&self) -> u32 {
        self.used().values().sum()
    }
}

pub(super) fn installed(install: &GroupInstall) -> NodeEvent {
    NodeEvent::Installed { group: install.group, epoch: install.epoch }
}

pub(super) fn refused(install: &GroupInstall) -> NodeEvent {
    let reason = "its own reasons".to_string();
    NodeEvent::Refused { group: install.group, epoch: install.epoch, reason }
}
