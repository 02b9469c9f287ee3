//! Long vectors streamed through real aggregators, and groups that compete for the stream lock.

use std::env;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tributary_daemon::embedded::Fabric;
use tributary_protocol::endpoint::{Endpoint, EndpointConfig, Event, OperationSpec};
use tributary_protocol::{Carrier, Time};
use tributary_transport::{Link, Sent};
use tributary_wire::control::GroupGrant;
use tributary_wire::frame::{Abort, AbortReason, Target};
use tributary_wire::{Datatype, Operator, StreamTerms};

use crate::common::*;

const TERMS: StreamTerms = StreamTerms { chunk_bytes: 16 << 10, window: 4 };
const MIB: usize = 1 << 20;

/// A member that streams vectors of 64-bit integers.
struct Streamer {
    endpoint: Endpoint,
    link: Box<dyn Link>,
    source: Vec<u8>,
    target: Vec<u8>,
    completed: usize,
    failed: Option<Abort>,
}

impl Streamer {
    fn join(group: &GroupGrant, index: usize, way: Way) -> Self {
        let grant = &group.endpoints[index];
        let endpoint = Endpoint::new(EndpointConfig {
            group: group.group,
            epoch: group.epoch,
            frame_version: group.frame_version,
            child: grant.child,
            capability: grant.capability,
            endpoint: grant.endpoint,
            osos: group.osos,
            payload_max_bytes: group.payload_max_bytes,
            operations_max: 1,
            stream: group.stream,
        });
        let chunk_bytes = group.stream.expect("the nodes stream").chunk_bytes;
        let link = connect(grant, group.payload_max_bytes.max(chunk_bytes), way, None);
        let (source, target) = (Vec::new(), Vec::new());
        let mut streamer = Self { endpoint, link, source, target, completed: 0, failed: None };
        streamer.pump();
        streamer
    }

    /// Starts to sum `elements` integers, of which the `i`th is `i * factor`.
    fn start(&mut self, elements: usize, factor: u64) {
        self.source = (0..elements as u64).flat_map(|i| (i * factor).to_le_bytes()).collect();
        self.target = vec![0xA5; self.source.len()];
        let spec = OperationSpec {
            operator: Operator::Sum,
            datatype: Datatype::U64,
            elements: elements as u64,
            target: Target::All,
            contributes: true,
            receives: true,
            digest: 0,
        };
        self.endpoint.start_stream(spec, usize::MAX).unwrap();
    }

    /// Takes and sends what there is; true if there was anything.
    fn pump(&mut self) -> bool {
        let mut worked = false;
        while let Ok(Some(frame)) = self.link.receive() {
            worked = true;
            let body = self.endpoint.handle_frame(Time(0), Carrier::Link, &frame.header).unwrap();
            if let Some(body) = body {
                self.target[body.bytes].copy_from_slice(frame.payload);
            }
        }
        while let Some(transmit) = self.endpoint.peek_transmit() {
            let payload = transmit.body.map_or(&[][..], |body| &self.source[body.bytes]);
            match self.link.send(&transmit.header.encode(), payload) {
                Ok(Sent::Taken) => self.endpoint.pop_transmit(Time(0)),
                Ok(Sent::Full) => break,
                Err(_) => self.endpoint.handle_link_closed(),
            }
            worked = true;
        }
        let _ = self.link.flush();
        while let Some(event) = self.endpoint.poll_event() {
            match event {
                Event::Joined | Event::AllHaveLeft => {}
                Event::Completed(_) => self.completed += 1,
                Event::Failed(abort) => self.failed = Some(abort),
                Event::DatagramPeer(_) | Event::Multicast(_) | Event::Datagrams(_) => {
                    unreachable!("offered no datagrams")
                }
            }
        }
        worked
    }

    fn assert_sum(&self, factors: u64) {
        for (index, sum) in self.target.chunks_exact(8).enumerate() {
            let sum = u64::from_le_bytes(sum.try_into().unwrap());
            assert_eq!(sum, index as u64 * factors, "element {index}");
        }
    }
}

fn streamers(group: &GroupGrant, way: Way) -> Vec<Streamer> {
    (0..group.endpoints.len()).map(|index| Streamer::join(group, index, way)).collect()
}

/// Drives members until `is_over`.
fn drive(members: &mut [Streamer], mut is_over: impl FnMut(&[Streamer]) -> bool) {
    let until = Instant::now() + WATCHDOG;
    while !is_over(members) {
        let worked = members.iter_mut().fold(false, |worked, member| member.pump() | worked);
        if !worked {
            assert!(Instant::now() < until, "stuck");
            thread::sleep(Duration::from_micros(50));
        }
    }
}

/// One vector over all members, checked.
fn stream_once(members: &mut [Streamer], elements: usize) {
    let rounds = members[0].completed + 1;
    let mut factors = 0;
    for (index, member) in members.iter_mut().enumerate() {
        member.start(elements, 3 * index as u64 + 1);
        factors += 3 * index as u64 + 1;
    }
    drive(members, |members| members.iter().all(|member| member.completed == rounds));
    members.iter().for_each(|member| member.assert_sum(factors));
}

fn gauge(fabric: &Fabric, node: &str, name: &str) -> f64 {
    metric(fabric, node, &format!("tributary_node_{name}"), "")
}

#[test]
fn vectors_stream_through_two_levels_over_both_transports() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        for way in [Way::Tcp, Way::Shm] {
            let group = job.streaming_group(&hosts(4), TERMS);
            assert_eq!(group.stream, Some(TERMS));
            let mut members = streamers(&group, way);
            for elements in [1, 2047, 2048, 2049, 300_000] {
                stream_once(&mut members, elements);
            }
        }
        for node in ["root", "leaf0", "leaf1"] {
            eventually("counters arrive", || gauge(&fabric, node, "streams_total") == 10.0);
            assert_eq!(gauge(&fabric, node, "refused_total"), 0.0);
        }
    });
}

#[test]
fn memory_depends_on_neither_length_nor_number_of_groups() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        let arena = |node| gauge(&fabric, node, "stream_arena_bytes");
        assert_eq!(arena("root"), 0.0, "nobody streams yet");
        let mut groups: Vec<_> =
            (0..2).map(|_| streamers(&job.streaming_group(&hosts(4), TERMS), Way::Tcp)).collect();
        let mut seen = Vec::new();
        for len_bytes in [MIB, 4 * MIB, 16 * MIB] {
            stream_once(&mut groups[0], len_bytes / 8);
            eventually("the gauge is set", || arena("root") > 0.0);
            seen.push((len_bytes, arena("root"), arena("leaf1")));
        }
        stream_once(&mut groups[1], MIB / 8);
        seen.push((MIB, arena("root"), arena("leaf1")));
        println!("vector bytes, stream arena bytes of root and leaf1: {seen:?}");
        assert!(seen.iter().all(|(_, root, leaf)| (*root, *leaf) == (seen[0].1, seen[0].2)));
    });
}

#[test]
fn short_sums_pass_a_stream_that_stands_still() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        let group = job.streaming_group(&hosts(4), TERMS);
        let mut long = streamers(&group, Way::Tcp);
        let mut short = members(&job.group(&hosts(4), 2, 1024), Way::Tcp);
        for (index, member) in long.iter_mut().enumerate() {
            member.start(4 * MIB / 8, index as u64 + 1);
        }
        // The last member requests too, because no stream would be granted otherwise, and then
        // sleeps.
        eventually("it has asked", || {
            long[3].pump();
            long[3].endpoint.awaits_stream_grant()
        });
        eventually("chunks flow", || {
            long[..3].iter_mut().for_each(|member| {
                member.pump();
            });
            gauge(&fabric, "leaf0", "chunks_total") > 0.0
        });
        // The stream holds every lock and can't go on.
        for round in 0..50 {
            sum_once(&mut short, f64::from(round));
        }
        assert!(long.iter().all(|member| member.completed == 0));
        drive(&mut long, |members| members.iter().all(|member| member.completed == 1));
        long.iter().for_each(|member| member.assert_sum(10));
    });
}

const GRANT: &str = "TRIBUTARY_TEST_GRANT";
const SAID_WHEN_STREAMING: &str = "it streams";

#[test]
#[ignore = "run by the test below, in a process of its own"]
fn holder() {
    let group: GroupGrant = serde_json::from_str(&env::var(GRANT).unwrap()).unwrap();
    let mut member = Streamer::join(&group, 0, Way::Tcp);
    member.start(16 * MIB / 8, 1);
    let mut is_said = false;
    loop {
        member.pump();
        let received = member.target.iter().any(|byte| *byte != 0xA5);
        if received && !is_said {
            println!("\n{SAID_WHEN_STREAMING}");
            is_said = true;
            // In the middle of its stream, it waits to be killed.
            thread::sleep(Duration::from_secs(600));
        }
    }
}

fn spawn_holder(group: &GroupGrant) -> Child {
    Command::new(env::current_exe().unwrap())
        .args(["--exact", "streams::holder", "--ignored", "--nocapture"])
        .env(GRANT, serde_json::to_string(group).unwrap())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

#[test]
fn a_killed_holder_frees_the_lock_for_the_next_group() {
    guarded(|| {
        let fabric = fabric(4, 2);
        let job = Job::admit(&fabric);
        let first = job.streaming_group(&hosts(4), TERMS);
        let mut child = spawn_holder(&first);
        let mut others: Vec<_> =
            (1..4).map(|index| Streamer::join(&first, index, Way::Tcp)).collect();
        others.iter_mut().for_each(|member| member.start(16 * MIB / 8, 1));
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let said = thread::spawn(move || {
            let mut words = Vec::new();
            for line in lines.map_while(Result::ok) {
                if line == SAID_WHEN_STREAMING {
                    return Ok(());
                }
                words.push(line);
            }
            Err(words)
        });
        drive(&mut others, |_| said.is_finished());
        said.join().unwrap().expect("the holder streams until it is killed");
        // The second group wants the lock that the first one holds, and doesn't get it.
        let mut second = streamers(&job.streaming_group(&hosts(4), TERMS), Way::Shm);
        for member in &mut second {
            member.start(MIB / 8, 1);
        }
        eventually("it waits at the root", || {
            second.iter_mut().for_each(|member| {
                member.pump();
            });
            gauge(&fabric, "root", "streams_waiting") == 1.0
        });
        assert!(
            second
                .iter()
                .all(|member| member.completed == 0 && member.endpoint.awaits_stream_grant())
        );
        child.kill().unwrap();
        child.wait().unwrap();
        drive(&mut second, |members| members.iter().all(|member| member.completed == 1));
        second.iter().for_each(|member| member.assert_sum(4));
        drive(&mut others, |members| members.iter().all(|member| member.failed.is_some()));
        for member in &others {
            assert_eq!(member.failed.unwrap().reason, AbortReason::MemberLost);
            assert_eq!(member.failed.unwrap().at_fault, first.endpoints[0].endpoint);
        }
        assert_eq!(gauge(&fabric, "root", "streams_waiting"), 0.0);
    });
}
