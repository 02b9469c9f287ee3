//! Groups that behave, and what they get.

use tributary_daemon::embedded::{Fabric, FabricOptions};
use tributary_daemon::node::NodeLimits;
use tributary_wire::control::{Refusal, RefusalCode};
use tributary_wire::frame::{AbortReason, Message};

use crate::common::*;

#[test]
fn sums_run_through_two_levels_over_both_transports() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        for way in [Way::Tcp, Way::Shm] {
            let group = job.group(&hosts(4), 4, 1024);
            let mut members = members(&group, way);
            for round in 0..100 {
                sum_once(&mut members, f64::from(round) + 0.5);
            }
            let seen = status(&fabric);
            assert_eq!(seen.groups.len(), 1);
            assert_eq!(seen.groups[0].nodes.len(), 3, "root and two leaves");
            assert_eq!(seen.nodes.iter().map(|node| node.osos_used).sum::<u32>(), 12);
            for member in &mut members {
                member.say(Message::Leave, &[]);
            }
            eventually("the group is over", || status(&fabric).groups.is_empty());
        }
        assert!(status(&fabric).nodes.iter().all(|node| node.osos_used == 0));
        eventually("counters arrive", || {
            metric(&fabric, "root", "tributary_node_results_total", "") >= 200.0
        });
        assert_eq!(metric(&fabric, "root", "tributary_node_refused_total", ""), 0.0);
    });
}

#[test]
fn a_group_that_no_tree_can_carry_is_refused_by_name() {
    guarded(|| {
        let limits = NodeLimits { osos: 10, ..NodeLimits::default() };
        let options = FabricOptions { hosts: 4, node_limits: limits, ..FabricOptions::default() };
        let fabric = Fabric::start(&options).unwrap();
        let job = Job::admit(&fabric);
        let first = job.group(&hosts(4), 8, 1024);
        let refusal = job.refusal(&hosts(4), 8, 1024);
        assert_eq!(refusal.code, RefusalCode::NodeExhausted);
        assert!(refusal.message.contains("root"), "names the node: {}", refusal.message);
        assert!(refusal.message.contains('2'), "says what it has: {}", refusal.message);
        // The group that stands is not disturbed, and one that fits still comes.
        let mut first = members(&first, Way::Tcp);
        let second = job.group(&hosts(4), 2, 1024);
        let mut second = members(&second, Way::Shm);
        sum_once(&mut first, 1.0);
        sum_once(&mut second, 2.0);
    });
}

#[test]
fn a_node_that_lacks_memory_refuses_and_the_others_forget() {
    guarded(|| {
        let limits = NodeLimits { arena_bytes: 1 << 20, ..NodeLimits::default() };
        let options = FabricOptions { hosts: 4, node_limits: limits, ..FabricOptions::default() };
        let fabric = Fabric::start(&options).unwrap();
        let job = Job::admit(&fabric);
        let refusal = job.refusal(&hosts(4), 16, 65_536);
        assert!(refusal.message.contains("payload memory"), "{}", refusal.message);
        assert!(refusal.message.contains("root"), "{}", refusal.message);
        eventually("OSOs are back", || {
            status(&fabric).nodes.iter().all(|node| node.osos_used == 0)
        });
        let group = job.group(&hosts(4), 4, 1024);
        sum_once(&mut members(&group, Way::Tcp), 3.0);
    });
}

#[test]
fn every_call_needs_the_token() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let right = token(fabric.token_file());
        let mut wrong = right.clone().into_bytes();
        wrong[0] = if wrong[0] == b'0' { b'1' } else { b'0' };
        let wrong = String::from_utf8(wrong).unwrap();
        let calls = [
            ("POST", "/v1/nodes"),
            ("POST", "/v1/nodes/0/events"),
            ("POST", "/v1/jobs"),
            ("POST", "/v1/jobs/0/groups"),
            ("GET", "/v1/status"),
            ("GET", "/metrics"),
        ];
        let metrics = fabric.metrics_address("root").unwrap();
        let all = calls
            .iter()
            .map(|(method, path)| (fabric.manager(), *method, *path))
            .chain([(metrics, "GET", "/metrics")]);
        for (address, method, path) in all {
            for shown in [None, Some(wrong.as_str()), Some("")] {
                let answer = call(address, shown, method, path, "");
                assert_eq!(answer.status, 401, "{method} {path}");
                assert_eq!(answer.json::<Refusal>().code, RefusalCode::Unauthorized);
            }
        }
        assert_eq!(call(metrics, Some(&right), "GET", "/metrics", "").status, 200);
        assert_eq!(call(fabric.manager(), Some(&right), "GET", "/metrics", "").status, 200);
        let bad = call(fabric.manager(), Some(&right), "POST", "/v1/jobs", "{");
        assert_eq!((bad.status, bad.json::<Refusal>().code), (400, RefusalCode::BadRequest));
    });
}

#[test]
fn a_lost_member_fails_its_group_everywhere_and_nothing_else() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        for way in [Way::Tcp, Way::Shm] {
            let mut bystanders = members(&job.group(&hosts(4), 2, 1024), way);
            let mut struck = members(&job.group(&hosts(4), 2, 1024), way);
            sum_once(&mut struck, 1.0);
            for member in &mut struck[..3] {
                member.contribute(&[1.0]);
            }
            drop(struck.pop());
            for member in &mut struck {
                match member.result() {
                    Err(End::Aborted(abort)) => assert_eq!(abort.reason, AbortReason::MemberLost),
                    other => panic!("{other:?}"),
                }
            }
            sum_once(&mut bystanders, 2.0);
            eventually("only the bystanders are left", || status(&fabric).groups.len() == 1);
            for member in &mut bystanders {
                member.say(Message::Leave, &[]);
            }
            eventually("nobody is left", || status(&fabric).groups.is_empty());
        }
        assert!(status(&fabric).nodes.iter().all(|node| node.osos_used == 0));
    });
}

#[test]
fn a_lost_node_fails_its_groups_and_its_place_is_free() {
    guarded(|| {
        let mut fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        let mut struck = members(&job.group(&hosts(4), 2, 1024), Way::Tcp);
        sum_once(&mut struck, 1.0);
        assert!(fabric.stop_node("leaf1"));
        for member in &mut struck {
            // Members below the lost aggregator receive its abort or find the link closed.
            assert!(member.result().is_err());
        }
        eventually("the group is gone", || status(&fabric).groups.is_empty());
        eventually("so is the node", || status(&fabric).nodes.len() == 2);
        eventually("OSOs are back", || {
            status(&fabric).nodes.iter().all(|node| node.osos_used == 0)
        });
        let mut next = members(&job.group(&hosts(4), 2, 1024), Way::Shm);
        sum_once(&mut next, 5.0);
    });
}

#[test]
fn a_job_that_dies_gives_back_what_it_held() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        let survivor = Job::admit(&fabric);
        let mut kept = members(&survivor.group(&hosts(2), 2, 1024), Way::Shm);
        let mut lost = members(&job.group(&hosts(4), 4, 1024), Way::Tcp);
        sum_once(&mut lost, 1.0);
        assert_eq!(status(&fabric).jobs.len(), 2);
        drop(job);
        for member in &mut lost {
            assert!(matches!(member.result(), Err(End::Aborted(_) | End::Closed)));
        }
        eventually("its group is gone", || status(&fabric).groups.len() == 1);
        assert_eq!(status(&fabric).jobs.len(), 1);
        sum_once(&mut kept, 2.0);
        drop(kept);
        drop(survivor);
        eventually("OSOs are back", || {
            status(&fabric).nodes.iter().all(|node| node.osos_used == 0)
        });
    });
}

#[test]
fn status_names_the_hosts_that_a_group_waits_for() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(4), 4, 1024);
        let mut members = members(&group, Way::Tcp);
        sum_once(&mut members, 1.0);
        let waiting = || fabric.status().groups[0].waiting.clone();
        for early in [0, 1, 3] {
            members[early].contribute(&[1.0]);
        }
        eventually("the late host is known", || {
            waiting().is_some_and(|it| it.hosts == hosts(4)[2..3] && it.operation == Some(2))
        });
        assert_eq!(waiting().unwrap().nodes, [""; 0]);
        members[2].contribute(&[1.0]);
        eventually("nobody is late", || waiting().is_none());
    });
}
