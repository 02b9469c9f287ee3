//! Admission from request to end.

use alloc::vec;

use super::*;
use crate::{AdmitError, Caller, DrainError, EventError, RegisterError};
use tributary_topology::GroupTreeError;
use tributary_wire::control::{DrainRequest, Drained, KernelState, Refusal, RefusalCode};
use tributary_wire::frame::Versions;
use tributary_wire::{Capability, Epoch, JobId};

const ACROSS: [&str; 4] = ["h0", "h1", "h4", "h5"];

fn site() -> Site {
    Site::new(ManagerConfig::default(), 2, 8, 16)
}

#[test]
fn installs_go_down_level_by_level_and_fit_together() {
    let mut site = site();
    let job = site.job();
    let ticket = site.request(&job, &ACROSS, 4).unwrap();
    let (root, top) = site.take_install().unwrap();
    assert_eq!(root, site.node["root"]);
    assert!(site.orders.is_empty(), "leaves have to wait for the root");
    assert_eq!(top.parent, None);
    site.report(root, installed(&top));
    let leaves = [site.take_install().unwrap(), site.take_install().unwrap()];
    assert!(site.decisions.is_empty());
    for (index, (node, install)) in leaves.iter().enumerate() {
        let parent = install.parent.as_ref().unwrap();
        let place = &top.children[usize::from(parent.child.0)];
        assert_eq!(parent.capability, place.capability);
        assert!(place.is_node && install.children.iter().all(|child| !child.is_node));
        assert_eq!(parent.address.tcp, "root:1");
        assert_eq!(install.children[0].members_first, place.members_first);
        assert_eq!(install.children[1].members_end, place.members_end);
        assert_eq!((install.osos, install.payload_max_bytes), (4, 1024));
        assert_eq!(*node, site.node[&format!("leaf{index}")]);
        site.report(*node, installed(install));
    }
    let grant = site.decisions.remove(&ticket).unwrap().unwrap();
    for (index, endpoint) in grant.endpoints.iter().enumerate() {
        let (_, install) = &leaves[index / 2];
        let place = &install.children[usize::from(endpoint.child.0)];
        assert_eq!(endpoint.capability, place.capability);
        assert_eq!(endpoint.endpoint, place.members_first);
        assert_eq!(endpoint.address.tcp, format!("leaf{}:1", index / 2));
    }
    assert_eq!(site.used().values().copied().collect::<Vec<_>>(), [4, 4, 4]);
}

#[test]
fn a_refusal_names_the_node_and_what_it_lacks() {
    let mut site = site();
    let job = site.job();
    site.grant(&job, &["h0", "h1"], 12);
    let error = site.request(&job, &ACROSS, 5).unwrap_err();
    let GroupError::NodeExhausted { ref node, needs, has, .. } = error else { panic!("{error}") };
    assert_eq!((node.as_str(), needs, has), ("leaf0", 5, 4));
    let refusal = Refusal::from(error);
    assert_eq!(refusal.code, RefusalCode::NodeExhausted);
    assert!(refusal.message.contains("`leaf0` needs 5") && refusal.message.contains("has 4"));
    assert_eq!(site.used()["leaf1"], 0, "nothing else is disturbed");
    site.grant(&job, &ACROSS, 4);
}

#[test]
fn too_few_children_are_named_too() {
    let mut site = Site::new(ManagerConfig::default(), 2, 3, 16);
    let job = site.job();
    assert_eq!(
        site.request(&job, &["h0", "h1", "h2", "h3"], 1),
        Err(GroupError::Tree(GroupTreeError::RadixExceeded {
            node: "leaf0".into(),
            needs: 4,
            has: 3
        }))
    );
    assert_eq!(site.used_in_all(), 0);
}

#[test]
fn one_nodes_refusal_rolls_everything_back() {
    let mut site = site();
    let job = site.job();
    let ticket = site.request(&job, &ACROSS, 4).unwrap();
    let (root, top) = site.take_install().unwrap();
    site.report(root, installed(&top));
    let (first, first_install) = site.take_install().unwrap();
    let (second, _) = site.take_install().unwrap();
    site.report(first, refused(&first_install));
    assert_eq!(
        site.decisions[&ticket],
        Err(GroupError::NodeRefused { node: "leaf0".into(), reason: "its own reasons".into() })
    );
    assert_eq!(site.take_removals(), [(root, top.group), (second, top.group)]);
    assert_eq!(site.used_in_all(), 0);
    // The other leaf answered before it got the removal.
    site.report(second, installed(&first_install));
    assert_eq!(site.manager.stats().events_stale, 1);
}

#[test]
fn a_silent_node_is_given_up_on() {
    let config = ManagerConfig { install_timeout_ns: 100, ..ManagerConfig::default() };
    let mut site = Site::new(config, 2, 8, 16);
    let job = site.job();
    assert_eq!(site.manager.poll_timeout(), None);
    let ticket = site.request(&job, &ACROSS, 4).unwrap();
    let (root, top) = site.take_install().unwrap();
    site.now = Time(60);
    site.report(root, installed(&top));
    assert_eq!(site.manager.poll_timeout(), Some(Time(160)), "each level has its own time");
    let (first, install) = site.take_install().unwrap();
    site.report(first, installed(&install));
    site.manager.handle_timeout(Time(159));
    site.drain();
    assert!(site.decisions.is_empty());
    site.manager.handle_timeout(Time(160));
    site.drain();
    assert_eq!(site.decisions[&ticket], Err(GroupError::NodeSilent { node: "leaf1".into() }));
    assert_eq!(site.take_removals().len(), 3, "the silent one is told as well");
    assert_eq!(site.used_in_all(), 0);
    assert_eq!(site.manager.poll_timeout(), None);
}

#[test]
fn a_nodes_death_frees_the_others_and_spares_other_groups() {
    let mut site = site();
    let job = site.job();
    let across = site.grant(&job, &ACROSS, 4);
    let within = site.grant(&job, &["h0", "h1"], 4);
    let pending = site.request(&job, &ACROSS, 4).unwrap();
    site.take_removals();
    site.manager.handle_node_gone(site.node["leaf1"]);
    site.drain();
    assert_eq!(site.decisions[&pending], Err(GroupError::NodeGone { node: "leaf1".into() }));
    let removals = site.take_removals();
    let (root, leaf) = (site.node["root"], site.node["leaf0"]);
    assert!(removals.contains(&(root, across.group)) && removals.contains(&(leaf, across.group)));
    assert!(
        removals
            .iter()
            .all(|(node, group)| { *node != site.node["leaf1"] && *group != within.group })
    );
    assert_eq!(site.used(), BTreeMap::from([("leaf0".into(), 4), ("root".into(), 0)]));
    // Until the aggregator is back, the root serves the fabric's other hosts.
    let moved = site.grant(&job, &["h4", "h5"], 1);
    assert_eq!(moved.endpoints[0].address.tcp, "root:1");
    site.register("leaf1", 8, 16);
    assert_eq!(site.grant(&job, &["h4", "h5"], 1).endpoints[0].address.tcp, "leaf1:1");
}

#[test]
fn a_jobs_end_undoes_what_it_holds_and_what_it_waits_for() {
    let mut site = site();
    let (job, other) = (site.job(), site.job());
    site.grant(&job, &ACROSS, 4);
    site.grant(&other, &ACROSS, 2);
    let pending = site.request(&job, &ACROSS, 4).unwrap();
    site.manager.handle_lease_closed(job.job);
    site.drain();
    assert_eq!(site.decisions[&pending], Err(GroupError::JobEnded { job: job.job }));
    assert!(site.used().values().all(|used| *used == 2));
    assert_eq!(site.request(&job, &ACROSS, 1), Err(GroupError::UnknownJob { job: job.job }));
    let status = site.manager.status(Time(0));
    assert_eq!((status.jobs.len(), status.groups.len()), (1, 1));
    site.manager.handle_lease_closed(job.job);
}

#[test]
fn a_group_ends_by_itself_node_by_node() {
    let mut site = site();
    let job = site.job();
    let GroupGrant { group, epoch, .. } = site.grant(&job, &ACROSS, 4);
    let [root, leaf0] = ["root", "leaf0"].map(|name| site.node[name]);
    site.report(leaf0, NodeEvent::Ended { group, epoch });
    assert_eq!(site.used()["leaf0"], 0);
    assert_eq!(site.used()["root"], 4);
    site.report(root, NodeEvent::Ended { group, epoch });
    assert_eq!(site.used_in_all(), 0);
    assert_eq!(site.take_removals(), [(site.node["leaf1"], group)], "swept up");
    assert_eq!(site.manager.stats().groups_ended, 1);
    site.report(site.node["leaf1"], NodeEvent::Ended { group, epoch });
}

#[test]
fn a_failure_removes_the_group_everywhere() {
    let mut site = site();
    let job = site.job();
    let GroupGrant { group, epoch, .. } = site.grant(&job, &ACROSS, 4);
    site.report(
        site.node["leaf1"],
        NodeEvent::Failed { group, epoch, reason: "member lost".into() },
    );
    assert_eq!(site.take_removals().len(), 3);
    assert_eq!(site.used_in_all(), 0);
    assert!(site.manager.status(Time(0)).groups.is_empty());
    assert_eq!(site.manager.stats().groups_cut, 1);
}

/// What jobs call themselves and their communicators is shown to others.
#[test]
fn names_that_steer_a_terminal_are_kept_written_out() {
    let mut site = Site::new(ManagerConfig::default(), 1, 4, 8);
    let name = "\u{1b}[2J\nnodes: 0\u{9b}".to_string();
    let long = "\u{1b}".repeat(255);
    let request = JobRequest { name, processes: 1, resume: None };
    let job = site.manager.admit_job(&Caller::Operator, request).unwrap();
    let request = GroupRequest {
        secret: job.secret,
        label: long.clone(),
        hosts: ["h0".into(), "\u{202e}h".into()].into(),
        frame_versions: Versions::SPOKEN,
        osos: 1,
        payload_max_bytes: 1024,
        stream: None,
        external_receiver: false,
    };
    site.manager.request_group(Time(0), &Caller::Operator, job.job, &request).unwrap();
    site.drain();
    let (node, install) = site.take_install().unwrap();
    let held = install.to_held_group().unwrap();
    site.report(node, installed(&install));
    site.install_all();
    let status = site.manager.status(Time(0));
    assert_eq!(status.jobs[0].name, "\\u{1b}[2J\\nnodes: 0\\u{9b}");
    let label = &status.groups[0].label;
    assert!(label.starts_with("\\u{1b}\\u{1b}") && label.len() <= 255, "{label}");
    assert!(status.groups[0].nodes.iter().any(|node| node.children.contains(&"\\u{202e}h".into())));
    // Aggregators keep it so for the next manager, which takes it.
    assert_eq!(&held.record.label, label);
    let refused = AdmitError::Name { got_bytes: 256, max_bytes: 255 };
    let request = JobRequest { name: "x".repeat(256), processes: 1, resume: None };
    assert_eq!(site.manager.admit_job(&Caller::Operator, request), Err(refused));
}

#[test]
fn secrets_and_bounds_are_checked() {
    let mut site = site();
    let (mut job, other) = (site.job(), site.job());
    assert_ne!(job.secret, other.secret);
    job.secret = other.secret;
    let wrong = site.request(&job, &ACROSS, 1).unwrap_err();
    assert_eq!(wrong, GroupError::WrongSecret { job: job.job });
    assert_eq!(wrong.code(), RefusalCode::Forbidden);
    job.secret = Capability::default();
    assert!(site.request(&job, &ACROSS, 1).is_err());
    job.job = JobId(99);
    assert_eq!(site.request(&job, &ACROSS, 1), Err(GroupError::UnknownJob { job: JobId(99) }));
    let out_of_bounds = |error| matches!(error, Err(GroupError::OutOfBounds { .. }));
    assert!(out_of_bounds(site.request(&other, &[], 1)));
    assert!(out_of_bounds(site.request(&other, &["h0"], 0)));
    assert!(out_of_bounds(site.request(&other, &["h0", ""], 1)));
    let long = "h".repeat(256);
    assert!(out_of_bounds(site.request(&other, &["h0", &long], 1)));
    assert_eq!(site.used_in_all(), 0);
}

#[test]
fn a_job_is_told_whether_frames_are_authenticated() {
    for authenticates_frames in [false, true] {
        let config = ManagerConfig { authenticates_frames, ..ManagerConfig::default() };
        let mut site = Site::new(config, 2, 8, 16);
        let job = site.job();
        assert_eq!(job.authenticate_frames, authenticates_frames);
        assert_eq!(site.grant(&job, &ACROSS, 4).key.is_some(), authenticates_frames);
    }
}

#[test]
fn ids_are_reused_and_epochs_are_not() {
    let mut site = site();
    let job = site.job();
    let first = site.grant(&job, &["h0"], 1);
    let second = site.grant(&job, &["h0"], 1);
    assert_eq!((first.group, second.group), (GroupId(0), GroupId(1)));
    let leaf = site.node["leaf0"];
    site.report(leaf, NodeEvent::Ended { group: first.group, epoch: first.epoch });
    let third = site.grant(&job, &["h0"], 1);
    assert_eq!(third.group, GroupId(0));
    assert!(third.epoch > second.epoch && second.epoch > first.epoch);
    // Late events about the first incarnation do not affect the third.
    site.report(leaf, NodeEvent::Ended { group: first.group, epoch: first.epoch });
    assert_eq!(site.used()["leaf0"], 2);
}

#[test]
fn a_drained_node_loses_its_groups_and_gets_no_more_until_it_registers_anew() {
    let mut site = site();
    let job = site.job();
    site.grant(&job, &["h0", "h4"], 1);
    site.grant(&job, &["h5"], 1);
    site.request(&job, &["h1", "h2"], 1).unwrap();
    site.orders.clear();
    let request = |node: &str| DrainRequest { node: node.into() };
    assert_eq!(site.manager.drain_node(&request("leaf0")), Ok(Drained { groups: 2 }));
    site.drain();
    let leaf = site.node["leaf0"];
    assert_eq!(site.take_removals().iter().filter(|(node, _)| *node == leaf).count(), 2);
    assert_eq!((site.used()["leaf0"], site.used()["leaf1"]), (0, 1), "others stay");
    let (_, refused) = site.decisions.pop_first().unwrap();
    assert_eq!(refused, Err(GroupError::NodeDrained { node: "leaf0".into() }));
    site.grant(&job, &["h0", "h4"], 1);
    assert_eq!(site.used()["leaf0"], 0);
    let draining =
        |site: &Site| site.manager.status(Time(0)).nodes.iter().any(|node| node.is_draining);
    assert!(draining(&site));
    let nobody = Err(DrainError::UnknownNode { name: "nobody".into() });
    assert_eq!(site.manager.drain_node(&request("nobody")), nobody);

    site.manager.handle_node_gone(leaf);
    site.register("leaf0", 4, 8);
    assert!(!draining(&site));
    site.grant(&job, &["h0", "h1"], 1);
    assert_eq!(site.used()["leaf0"], 1);
}

#[test]
fn unexpected_events_of_nodes_are_refused() {
    let mut site = site();
    let job = site.job();
    let GroupGrant { group, epoch, .. } = site.grant(&job, &["h0", "h1"], 4);
    let [root, leaf] = ["root", "leaf0"].map(|name| site.node[name]);
    let now = site.now;
    let mut report = |node, event| site.manager.handle_node_event(now, node, event);
    // Another manager's, for all that is known.
    let never = Epoch(epoch.0 + 1);
    assert_eq!(report(leaf, NodeEvent::Ended { group, epoch: never }), Ok(()));
    let stranger = Err(EventError::NotAMember { node: root, group });
    assert_eq!(report(root, NodeEvent::Failed { group, epoch, reason: String::new() }), stranger);
    let twice = Err(EventError::Unexpected { node: leaf, group, event: "installed" });
    assert_eq!(report(leaf, NodeEvent::Installed { group, epoch }), twice);
    let nobody = NodeId(99);
    assert_eq!(report(nobody, NodeEvent::Tick), Err(EventError::UnknownNode { node: nobody }));
    assert_eq!(site.used()["leaf0"], 4);

    let ticket = site.request(&job, &["h0", "h4"], 1).unwrap();
    let (_, top) = site.take_install().unwrap();
    let early = site.manager.handle_node_event(now, leaf, installed(&top));
    assert_eq!(
        early,
        Err(EventError::Unexpected { node: leaf, group: top.group, event: "installed" })
    );
    assert!(!site.decisions.contains_key(&ticket));
}

#[test]
fn exhaustion_passes() {
    let mut site = site();
    let job = site.job();
    let grants: Vec<_> = (0..4).map(|_| site.grant(&job, &ACROSS, 4)).collect();
    assert!(matches!(
        site.request(&job, &ACROSS, 1),
        Err(GroupError::NodeExhausted { has: 0, .. })
    ));
    let GroupGrant { group, epoch, .. } = grants[2];
    site.report(site.node["root"], NodeEvent::Ended { group, epoch });
    assert_eq!(site.grant(&job, &ACROSS, 4).group, group);
}

#[test]
fn quotas_and_limits_hold() {
    let config = ManagerConfig {
        nodes_max: 3,
        jobs_max: 2,
        groups_max: 2,
        endpoints_max: 4,
        osos_per_group_max: 6,
        osos_per_job_max: Some(8),
        ..ManagerConfig::default()
    };
    let mut site = Site::new(config, 2, 8, 64);
    let (job, other) = (site.job(), site.job());
    assert_eq!(site.job_of(&Caller::Operator), Err(AdmitError::TooManyJobs { max: 2 }));
    assert_eq!(
        site.manager.register_node(registration("late", 1, 1)),
        Err(RegisterError::TooManyNodes { max: 3 })
    );
    assert!(matches!(
        site.request(&job, &["h0", "h1", "h2", "h3", "h4"], 1),
        Err(GroupError::OutOfBounds { got: 5, max: 4, .. })
    ));
    assert_eq!(site.grant(&job, &["h0"], 500).osos, 6, "cut to what a group may have");
    let quota = GroupError::JobQuota { job: job.job, needs: 3, has: 2 };
    assert_eq!(site.request(&job, &["h0"], 3), Err(quota));
    site.grant(&other, &["h0"], 3);
    let full = site.request(&other, &["h0"], 1).unwrap_err();
    assert!(matches!(full, GroupError::TooManyGroups { max: 2, .. }));
    let text = full.to_string();
    assert!(text.contains("held by job 0 `job` (1), job 1 `job` (1)"), "{text}");
    assert_eq!(full.code(), RefusalCode::LimitReached);
}

#[test]
fn useless_registrations_are_refused() {
    let mut site = site();
    let mut refuse = |registration| site.manager.register_node(registration).unwrap_err();
    let name_taken = RegisterError::NameTaken { name: "root".into() };
    assert_eq!(refuse(registration("root", 4, 4)), name_taken);
    assert!(matches!(refuse(registration("", 4, 4)), RegisterError::Text { field: "name", .. }));
    let kernel = |kernel| NodeRegistration { kernel: Some(kernel), ..registration("kernel", 4, 4) };
    let many = RegisterError::TooManyInterfaces { got: 257, max: 256 };
    assert_eq!(refuse(kernel(KernelState::At(vec!["eth0".into(); 257]))), many);
    let long = refuse(kernel(KernelState::Unavailable("x".repeat(256))));
    assert!(matches!(long, RegisterError::Text { got_bytes: 256, .. }));
    let nameless = refuse(kernel(KernelState::At(vec!["eth0".into(), String::new()])));
    assert!(matches!(nameless, RegisterError::Text { field: "interface", .. }));
    let radix = RegisterError::Capacity { field: "radix", got: 0, min: 1 };
    assert_eq!(refuse(registration("n", 0, 4)), radix);
    let mut short = registration("n", 4, 4);
    short.payload_max_bytes = 15;
    assert!(matches!(refuse(short), RegisterError::Capacity { min: 16, .. }));
    assert_eq!(site.manager.status(Time(0)).nodes.len(), 3);
}

#[test]
fn the_shortest_node_bounds_the_segments() {
    let mut site = site();
    let mut small = registration("leaf0", 8, 16);
    small.payload_max_bytes = 256;
    site.manager.handle_node_gone(site.node["leaf0"]);
    let node = site.manager.register_node(small).unwrap();
    site.node.insert("leaf0".into(), node);
    site.drain();
    let job = site.job();
    assert_eq!(site.grant(&job, &ACROSS, 1).payload_max_bytes, 256);
    assert_eq!(site.grant(&job, &["h4"], 1).payload_max_bytes, 1024);
}

#[test]
fn a_grant_says_whether_all_nodes_are_inside_the_kernel() {
    let mut site = site();
    let job = site.job();
    let move_inside = |site: &mut Site, name: &str, state| {
        let inside = NodeRegistration { kernel: Some(state), ..registration(name, 8, 64) };
        site.manager.handle_node_gone(site.node[name]);
        let node = site.manager.register_node(inside).unwrap();
        site.node.insert(name.into(), node);
        site.drain();
    };
    let at = || KernelState::At(vec!["eth0".into()]);
    assert!(!site.grant(&job, &["h0", "h1"], 4).in_kernel);
    move_inside(&mut site, "leaf0", KernelState::Unavailable("no JIT".into()));
    assert!(!site.grant(&job, &["h0", "h1"], 4).in_kernel);
    move_inside(&mut site, "leaf0", at());
    assert!(site.grant(&job, &["h0", "h1"], 16).in_kernel);
    assert!(!site.grant(&job, &["h0", "h1"], 17).in_kernel, "more than the program holds");
    assert!(!site.grant(&job, &ACROSS, 4).in_kernel, "the others are processes");
    for name in ["leaf1", "root"] {
        move_inside(&mut site, name, at());
    }
    assert!(site.grant(&job, &ACROSS, 4).in_kernel);
}

#[test]
fn without_nodes_there_is_no_tree() {
    let mut manager = Manager::new(ManagerConfig::default(), Fabric::new(), SEED);
    let job = manager
        .admit_job(
            &Caller::Operator,
            JobRequest { name: String::new(), processes: 1, resume: None },
        )
        .unwrap();
    let request = GroupRequest {
        secret: job.secret,
        label: String::new(),
        hosts: Vec::from(["h".to_string()]),
        frame_versions: Versions::SPOKEN,
        osos: 1,
        payload_max_bytes: 16,
        stream: None,
        external_receiver: false,
    };
    let error = manager.request_group(Time(0), &Caller::Operator, job.job, &request).unwrap_err();
    assert_eq!(error.code(), RefusalCode::NoTree);
    assert_eq!(manager.stats().groups_refused, 1);
}

#[test]
fn status_shows_the_tree_and_the_groups() {
    let mut site = site();
    let job = site.job();
    site.grant(&job, &ACROSS, 4);
    let status = site.manager.status(Time(0));
    let parent = |name: &str| {
        let node = status.nodes.iter().find(|node| node.registration.name == name).unwrap();
        node.parent.clone()
    };
    assert_eq!((parent("root"), parent("leaf1")), (None, Some("root".into())));
    assert_eq!(status.jobs[0].groups, 1);
    let [root, _, leaf1] = &status.groups[0].nodes[..] else { panic!("three nodes take part") };
    assert_eq!((root.name.as_str(), &root.parent), ("root", &None));
    assert_eq!(root.children, ["leaf0", "leaf1"]);
    assert_eq!(
        (leaf1.parent.as_deref(), &leaf1.children[..]),
        (Some("root"), &["h4".into(), "h5".into()][..])
    );
}

#[test]
fn equal_seeds_give_equal_secrets_and_others_do_not() {
    let first_secret = |seed| {
        let mut manager = Manager::new(ManagerConfig::default(), Fabric::new(), seed);
        manager
            .admit_job(
                &Caller::Operator,
                JobRequest { name: String::new(), processes: 1, resume: None },
            )
            .unwrap()
            .secret
    };
    assert_eq!(first_secret([1; 32]), first_secret([1; 32]));
    assert_ne!(first_secret([1; 32]), first_secret([2; 32]));
}

#[test]
fn a_dead_node_gets_no_orders() {
    let mut site = site();
    let [alive, dying] = ["late-a", "late-b"]
        .map(|name| site.manager.register_node(registration(name, 1, 1)).unwrap());
    site.manager.handle_node_gone(dying);
    let registered = NodeOrder::Registered { node: alive };
    assert_eq!(site.manager.poll_order(), Some((alive, registered)));
    assert_eq!(site.manager.poll_order(), None);
}

#[test]
fn streams_are_granted_as_wide_as_every_node_holds() {
    let mut site = site();
    let job = site.job();
    let grant = site.grant(&job, &ACROSS, 4);
    // 1 MiB and 4 were requested; the aggregators have 64 KiB and 8.
    assert_eq!(grant.stream, Some(StreamTerms { chunk_bytes: 1 << 16, window: 4 }));
    let node = NodeRegistration { stream: None, ..registration("narrow", 8, 8) };
    site.manager.register_node(node).unwrap();
    site.drain();
    let far = site.request(&job, &["narrow.machine", "h0"], 1);
    if let Ok(ticket) = far {
        site.install_all();
        let grant = site.decisions.remove(&ticket).unwrap().unwrap();
        assert_eq!(grant.stream, None, "one node that can't is enough");
    }
}

#[test]
fn groups_of_different_placements_share_no_stream_lock() {
    let mut site = site();
    let job = site.job();
    let tree_of = |site: &mut Site| {
        let ticket = site.request(&job, &ACROSS, 1).unwrap();
        let mut trees = Vec::new();
        while let Some((node, install)) = site.take_install() {
            trees.push(install.stream.map(|stream| stream.tree));
            site.report(node, installed(&install));
        }
        assert!(trees.windows(2).all(|pair| pair[0] == pair[1]), "one tree at all its nodes");
        (trees[0], site.decisions.remove(&ticket).unwrap().unwrap())
    };
    let (first, grant) = tree_of(&mut site);
    assert_eq!(tree_of(&mut site).0, first, "one placement, one lock");
    site.register("late", 8, 8);
    let (second, _) = tree_of(&mut site);
    assert!(second.is_some() && second != first, "{second:?} after {first:?}");
    site.register("later", 8, 8);
    let (third, grant_without) = tree_of(&mut site);
    assert_eq!((third, grant_without.stream), (None, None), "the nodes have two locks each");
    // The first placement's groups end, and its number is free.
    for group in [grant.group, GroupId(1)] {
        let epoch =
            site.manager.status(Time(0)).groups.iter().find(|it| it.group == group).unwrap().epoch;
        let root = site.node["root"];
        site.report(root, NodeEvent::Failed { group, epoch, reason: "gone".into() });
    }
    assert_eq!(tree_of(&mut site).0, first);
}
