//! Nothing is left behind: descriptors, memory, files.
//!
//! Descriptors are counted for the whole process, so the tests run one after the other, and each
//! runs its scenario once before it counts.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use tributary_wire::frame::Message;

use crate::common::*;

/// What aggregators and manager do once a second.
const TICK: Duration = Duration::from_secs(1);

fn descriptors() -> usize {
    fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The number of descriptors once it has stopped changing: aggregators open their connections for events
/// with their first tick.
fn descriptors_at_rest() -> usize {
    let (mut count, mut since) = (descriptors(), Instant::now());
    while since.elapsed() < 2 * TICK {
        thread::sleep(TICK / 50);
        if descriptors() != count {
            (count, since) = (descriptors(), Instant::now());
        }
    }
    count
}

/// Runs this one test in a process of its own, where nobody else opens descriptors.
fn alone(test: &str, body: impl FnOnce() + Send + 'static) {
    const ALONE: &str = "TRIBUTARY_TEST_ALONE";
    if std::env::var_os(ALONE).is_some() {
        return guarded(body);
    }
    let this = std::env::current_exe().unwrap();
    let output = std::process::Command::new(this)
        .args(["--exact", test, "--nocapture"])
        .env(ALONE, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    let failed = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{failed}");
    assert!(said.contains("1 passed"), "the test ran: {said}");
}

#[test]
fn many_groups_later_everything_is_where_it_was() {
    alone("resources::many_groups_later_everything_is_where_it_was", || {
        let fabric = fabric(4, 2);
        let cycle = |round: u32| {
            let job = Job::admit(&fabric);
            let way = if round.is_multiple_of(2) { Way::Tcp } else { Way::Shm };
            let mut members = members(&job.group(&hosts(4), 4, 4096), way);
            sum_once(&mut members, 1.0);
            match round % 3 {
                // In good order, by dying one after the other, and with the whole job.
                0 => members.iter_mut().for_each(|member| member.say(Message::Leave, &[])),
                1 => drop(members),
                _ => drop(job),
            }
            eventually("the group is over", || status(&fabric).groups.is_empty());
        };
        let is_quiet = || {
            ["root", "leaf0", "leaf1"].iter().all(|node| {
                metric(&fabric, node, "tributary_node_links", "") == 0.0
                    && metric(&fabric, node, "tributary_node_groups", "") == 0.0
                    && metric(&fabric, node, "tributary_node_arena_bytes", "") == 0.0
                    && metric(&fabric, node, "tributary_node_osos_used", "") == 0.0
            })
        };
        (0..6).for_each(cycle);
        eventually("all is quiet", is_quiet);
        let before = descriptors_at_rest();
        (0..60).for_each(cycle);
        eventually("all is quiet again", is_quiet);
        eventually("every descriptor is back", || descriptors() <= before);
        assert!(status(&fabric).nodes.iter().all(|node| node.osos_used == 0));
    });
}

#[test]
fn connectors_that_come_and_go_leave_nothing() {
    alone("resources::connectors_that_come_and_go_leave_nothing", || {
        let fabric = fabric(2, 0);
        let root = status(&fabric).nodes[0].registration.address.clone();
        let knock = || {
            let _ = std::net::TcpStream::connect(&root.tcp).unwrap();
            let path = root.shm.as_ref().unwrap();
            let _ = std::os::unix::net::UnixStream::connect(path).unwrap();
        };
        (0..10).for_each(|_| knock());
        let is_quiet = || metric(&fabric, "root", "tributary_node_links", "") == 0.0;
        eventually("all is quiet", is_quiet);
        let before = descriptors_at_rest();
        (0..500).for_each(|_| knock());
        eventually("all is quiet again", is_quiet);
        eventually("every descriptor is back", || descriptors() <= before);
    });
}

#[test]
fn a_stopped_fabric_leaves_no_thread_descriptor_or_file() {
    alone("resources::a_stopped_fabric_leaves_no_thread_descriptor_or_file", || {
        let threads = || fs::read_dir("/proc/self/task").unwrap().count();
        drop(fabric(2, 2));
        let before = (descriptors(), threads());
        let fabric = fabric(4, 2);
        let folder = fabric.token_file().parent().unwrap().to_owned();
        let job = Job::admit(&fabric);
        let mut members = members(&job.group(&hosts(4), 4, 4096), Way::Shm);
        sum_once(&mut members, 1.0);
        drop(fabric);
        for member in &mut members {
            assert!(member.result().is_err(), "the fabric aborted the group or closed the link");
        }
        drop((members, job));
        assert!(!folder.exists());
        eventually("everything is back", || {
            let now = (descriptors(), threads());
            now.0 <= before.0 && now.1 <= before.1
        });
    });
}

/// Every ask for a group beyond the limit is answered with the reason, at once, and the groups that are there work on.
#[test]
fn a_group_for_which_descriptors_are_missing_is_refused_with_the_reason() {
    alone(
        "resources::a_group_for_which_descriptors_are_missing_is_refused_with_the_reason",
        || {
            let fabric = fabric(2, 0);
            let job = Job::admit(&fabric);
            let mut first = members(&job.group(&hosts(2), 4, 4096), Way::Shm);
            let limit = 256 + descriptors_at_rest();
            let limits = rustix::process::Rlimit {
                current: Some(limit as u64),
                maximum: Some(limit as u64),
            };
            rustix::process::setrlimit(rustix::process::Resource::Nofile, limits).unwrap();
            // What others have opened: room for one more group, but not for the reserve.
            let ballast: Vec<_> = (0..190).map(|_| fs::File::open("/dev/null").unwrap()).collect();
            for _ in 0..5 {
                let answer = job.request(&hosts(2), 4, 4096);
                assert_ne!(answer.status, 200);
                assert!(answer.body.contains("descriptors are in use"), "{}", answer.body);
            }
            sum_once(&mut first, 1.0);
            drop(ballast);
            let mut second = members(&job.group(&hosts(2), 4, 4096), Way::Shm);
            sum_once(&mut second, 2.0);
            sum_once(&mut first, 3.0);
        },
    );
}
