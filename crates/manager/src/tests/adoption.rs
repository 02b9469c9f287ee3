//! A manager that comes after another, whose groups live on.

use alloc::vec::Vec;

use tributary_wire::control::{
    HeldGroup, JobAdmission, JobPlace, JobRequest, NodeEvent, NodeOffer, NodeOrder,
};
use tributary_wire::{Epoch, JobId, NodeId};

use super::{PLACE_KEY, SEED, STREAMS, Site, fabric, registration};
use crate::{AdmitError, Caller, GroupError, Manager, ManagerConfig};
use tributary_protocol::Time;

const LEAVES: u16 = 2;
const OSOS: u32 = 8;
const NAMES: [&str; 3] = ["root", "leaf0", "leaf1"];

/// What each of `NAMES` holds of all groups that were installed.
struct Held([Vec<HeldGroup>; 3]);

/// A manager with its aggregators, before it dies.
fn first() -> Site {
    Site::new(ManagerConfig::default(), LEAVES, 4, OSOS)
}

/// Grants a group of four OSOs over both leaves, and one of two below `leaf0`; what aggregators then hold.
fn grant_two(site: &mut Site, job: &JobAdmission) -> Held {
    let mut held = Held(Default::default());
    for (hosts, osos) in [(&["h0", "h4"][..], 4), (&["h1", "h2"], 2)] {
        site.request(job, hosts, osos).unwrap();
        while let Some((node, install)) = site.take_install() {
            let at = NAMES.iter().position(|name| site.node[*name] == node).unwrap();
            held.0[at].push(install.to_held_group().unwrap());
            site.report(node, super::installed(&install));
        }
    }
    assert_eq!(site.manager.status(Time(0)).groups.len(), 2);
    held
}

/// The manager that comes after.
fn second() -> Site {
    let config = ManagerConfig {
        first_epoch: Epoch(1000),
        first_job: JobId(1000),
        ..ManagerConfig::default()
    };
    Site {
        manager: Manager::new(config, fabric(LEAVES, 8), [SEED[0] + 1; 32])
            .with_place_keys([PLACE_KEY].into()),
        now: Time(0),
        node: Default::default(),
        orders: Default::default(),
        decisions: Default::default(),
    }
}

/// Registers an aggregator with what it holds; returns what it is to remove.
fn register(
    site: &mut Site,
    name: &str,
    holds: &[HeldGroup],
) -> Vec<(NodeId, tributary_wire::GroupId)> {
    let offer = NodeOffer { registration: registration(name, 4, OSOS), holds: holds.to_vec() };
    let node = site.manager.register_node(offer).unwrap();
    site.node.insert(name.into(), node);
    assert_eq!(site.manager.poll_order(), Some((node, NodeOrder::Registered { node })));
    site.drain();
    site.take_removals()
}

fn resume(site: &mut Site, job: &JobAdmission) -> Result<JobAdmission, AdmitError> {
    let resume = Some(JobPlace { job: job.job, secret: job.secret });
    site.manager
        .admit_job(&Caller::Operator, JobRequest { name: "job".into(), processes: 8, resume })
}

#[test]
fn the_view_is_that_of_the_manager_before_in_whatever_order_nodes_come() {
    let mut before = first();
    let job = before.job();
    let held = grant_two(&mut before, &job);
    let (groups, used) = (before.manager.status(Time(0)).groups, before.used());
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2], [1, 2, 0]] {
        let mut after = second();
        for at in order {
            assert_eq!(register(&mut after, NAMES[at], &held.0[at]), []);
        }
        assert_eq!(after.used(), used);
        let known = after.manager.status(Time(0));
        for (known, was) in known.groups.iter().zip(&groups) {
            assert_eq!((known.group, known.epoch, known.osos), (was.group, was.epoch, was.osos));
            assert_eq!((&known.label, known.job), (&was.label, was.job));
            assert_eq!(known.nodes[0], was.nodes[0], "root first");
            assert!(was.nodes.iter().all(|node| known.nodes.contains(node)));
        }
        assert_eq!((known.jobs[0].job, known.jobs[0].name.as_str()), (job.job, "job"));
        // No outstanding operation is granted twice, and no number.
        let other = after.job();
        let exhausted = after.request(&other, &["h0", "h4"], OSOS as u16);
        assert!(matches!(exhausted, Err(GroupError::NodeExhausted { .. })), "{exhausted:?}");
        let grant = after.grant(&other, &["h0"], 2);
        assert!(groups.iter().all(|was| was.group != grant.group && was.epoch != grant.epoch));
        assert_ne!(other.job, job.job);
    }
}

#[test]
fn a_job_comes_back_to_its_groups_and_takes_them_along_when_it_ends() {
    let mut before = first();
    let job = before.job();
    let held = grant_two(&mut before, &job);
    let mut after = second();
    for (name, held) in NAMES.iter().zip(&held.0) {
        register(&mut after, name, held);
    }
    assert!(matches!(after.request(&job, &["h0"], 1), Err(GroupError::WrongSecret { .. })));
    assert_eq!(resume(&mut after, &job), Ok(job.clone()));
    assert_eq!(resume(&mut after, &job), Ok(job.clone()), "another of its processes");
    let stranger =
        JobAdmission { secret: tributary_wire::Capability::from_bytes([9; 16]), ..job.clone() };
    let no_proof = Err(AdmitError::NoProof { job: job.job });
    assert_eq!(resume(&mut after, &stranger), no_proof);
    after.grant(&job, &["h0"], 1);
    after.manager.handle_lease_closed(job.job);
    after.drain();
    assert_eq!(after.take_removals(), [], "the other lease stands");
    after.manager.handle_lease_closed(job.job);
    after.drain();
    assert_eq!(after.take_removals().len(), 5, "of three groups on one to three nodes");
    assert_eq!(after.used_in_all(), 0);
    assert!(after.manager.status(Time(0)).jobs.is_empty());
}

#[test]
fn a_job_that_nobody_resumes_is_gone_with_its_last_group() {
    let mut before = first();
    let job = before.job();
    let held = grant_two(&mut before, &job);
    let mut after = second();
    // The root died meanwhile.
    register(&mut after, "leaf0", &held.0[1]);
    register(&mut after, "leaf1", &held.0[2]);
    for (at, held) in [("leaf0", &held.0[1]), ("leaf1", &held.0[2])] {
        for part in held {
            let (group, epoch) = (part.group, part.epoch);
            let lost = NodeEvent::Failed { group, epoch, reason: "node-lost".into() };
            let node = after.node[at];
            after.report(node, lost);
        }
    }
    assert_eq!(after.used_in_all(), 0);
    let status = after.manager.status(Time(0));
    assert!(status.groups.is_empty() && status.jobs.is_empty());
}

#[test]
fn what_ended_with_a_nodes_connection_is_not_taken_over_again() {
    let mut site = first();
    let job = site.job();
    let held = grant_two(&mut site, &job);
    let leaf = site.node["leaf0"];
    site.manager.handle_node_gone(leaf);
    site.drain();
    site.take_removals();
    assert_eq!(register(&mut site, "leaf0", &held.0[1]).len(), 2);
    assert_eq!(site.used_in_all(), 0);
}

#[test]
fn a_group_whose_number_was_given_to_another_is_removed() {
    let mut before = first();
    let job = before.job();
    let held = grant_two(&mut before, &job);
    let mut after = second();
    register(&mut after, "root", &[]);
    register(&mut after, "leaf0", &[]);
    let other = after.job();
    let granted = after.grant(&other, &["h0"], 1);
    assert_eq!(granted.group, held.0[2][0].group);
    assert_eq!(register(&mut after, "leaf1", &held.0[2]).len(), 1);
    assert_eq!(after.used()["leaf1"], 0);
}

#[test]
fn a_tree_that_streams_under_an_unknown_shape_gets_no_further_group() {
    let mut before = first();
    let job = before.job();
    let held = grant_two(&mut before, &job);
    let tree = held.0[1][0].stream.unwrap().tree;
    let mut after = second();
    for (name, held) in NAMES.iter().zip(&held.0) {
        register(&mut after, name, held);
    }
    let other = after.job();
    after.request(&other, &["h5"], 1).unwrap();
    let (_, install) = after.take_install().unwrap();
    assert_ne!(install.stream.unwrap().tree, tree);
    const { assert!(STREAMS.trees > 1) };
}

#[test]
fn what_no_manager_wrote_is_removed() {
    let mut before = first();
    let job = before.job();
    let held = grant_two(&mut before, &job).0[1][0].clone();
    let mut record = held.record.clone();
    record.children.clear();
    let without_children = HeldGroup { record, ..held.clone() };
    let mut record = held.record.clone();
    record.label = "x".repeat(256);
    let long = HeldGroup { record, ..held.clone() };
    let too_many = HeldGroup { osos: OSOS as u16 + 1, ..held.clone() };
    let none = HeldGroup { osos: 0, ..held.clone() };
    for bad in [without_children, long, too_many, none] {
        let mut after = second();
        assert_eq!(register(&mut after, "leaf0", &[bad]).len(), 1);
        assert_eq!(after.used_in_all(), 0);
        assert!(after.manager.status(Time(0)).groups.is_empty());
    }
    // One that is told twice counts once.
    let mut after = second();
    assert_eq!(register(&mut after, "leaf0", &[held.clone(), held.clone()]).len(), 1);
}
