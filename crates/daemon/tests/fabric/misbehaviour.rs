//! Peers that break the protocol, while another group keeps it.
//!
//! Each case runs while a bystanders' group on the same aggregators sums on, and ends with the case's own
//! counter one higher and every other counter where it was.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;

use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use tributary_daemon::embedded::{Fabric, FabricOptions};
use tributary_daemon::node::NodeLimits;
use tributary_transport::{Inject, Link, TcpOptions, connect_tcp};
use tributary_wire::control::{GroupGrant, NodeAddress};
use tributary_wire::frame::{HEADER_BYTES, Header, Message, Part, Shape};
use tributary_wire::{Capability, ChildIndex, Datatype, Epoch, Operator};

use crate::common::*;

const PAYLOAD_MAX_BYTES: u32 = 1024;

/// Two members on one leaf, so that their path leads through the leaf and the root.
struct Scene {
    fabric: Fabric,
    job: Job,
    bystanders: Vec<Member>,
    round: f64,
}

impl Scene {
    fn new() -> Self {
        Self::with_limits(NodeLimits::default())
    }

    fn with_limits(node_limits: NodeLimits) -> Self {
        let options = FabricOptions { hosts: 4, node_limits, ..FabricOptions::default() };
        let fabric = Fabric::start(&options).unwrap();
        let job = Job::admit(&fabric);
        let bystanders = members(&job.group(&hosts(4), 2, PAYLOAD_MAX_BYTES), Way::Tcp);
        let mut scene = Self { fabric, job, bystanders, round: 0.0 };
        scene.sum();
        scene
    }

    fn sum(&mut self) {
        self.round += 1.0;
        sum_once(&mut self.bystanders, self.round);
    }

    fn leaf(&self) -> NodeAddress {
        let status = status(&self.fabric);
        let leaf = status.nodes.iter().find(|node| node.registration.name == "leaf0");
        leaf.unwrap().registration.address.clone()
    }

    fn refused(&self, reason: &str) -> f64 {
        metric(&self.fabric, "leaf0", "tributary_node_refused_total", reason)
    }

    fn raw(&self) -> TcpStream {
        let stream = TcpStream::connect(&self.leaf().tcp).unwrap();
        stream.set_read_timeout(Some(WATCHDOG)).unwrap();
        stream
    }

    fn victim(&self) -> GroupGrant {
        self.job.group(&hosts(4), 2, PAYLOAD_MAX_BYTES)
    }

    /// Runs `misbehave`, which ends once its link was closed, and looks at the counters.
    fn expect(&mut self, reason: &str, misbehave: impl FnOnce(&Self)) {
        let label = format!("reason=\"{reason}\"");
        let (before, all) = (self.refused(&label), self.refused(""));
        misbehave(self);
        self.sum();
        eventually(reason, || self.refused(&label) > before);
        assert_eq!(self.refused(&label), before + 1.0, "{reason} counts once");
        assert_eq!(self.refused(""), all + 1.0, "{reason} and nothing else");
        self.sum();
    }
}

/// Waits until the other side closes.
fn until_closed(mut stream: TcpStream) {
    let mut rest = Vec::new();
    // A connection closed with unread input ends in a reset.
    if let Err(error) = stream.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "{error}");
    }
}

#[test]
fn bytes_that_are_no_frames_close_their_link_only() {
    guarded(|| {
        let mut scene = Scene::new();
        let victim = scene.victim();
        let join = Header { edge: edge(&victim, 0), message: Message::Join }.encode();
        let mut send = |reason: &str, bytes: &[u8]| {
            scene.expect(reason, |scene| {
                let mut stream = scene.raw();
                stream.write_all(bytes).unwrap();
                stream.shutdown(std::net::Shutdown::Write).unwrap();
                until_closed(stream);
            });
        };
        send("garbage", &[0x55; 200]);
        send(
            "garbage",
            b"GET / HTTP/1.1\r\nHost: an AN is no web server, and this is a long line\r\n\r\n",
        );
        send("truncated", &join[..HEADER_BYTES - 1]);
        let mut wrong = join;
        wrong[4] += 1;
        send("wrong-version", &wrong);
        wrong[4] += 1;
        send("wrong-version", &wrong);
        let mut wrong = join;
        wrong[5] = 0xEE;
        send("bad-field", &wrong);
        // A header that announces more than the aggregator takes.
        let part = Part {
            shape: Shape::new(Operator::Sum, Datatype::F64, 1 << 17).unwrap(),
            ..part(1, 0)
        };
        let huge = Header { edge: edge(&victim, 0), message: Message::Request(part) }.encode();
        send("oversized", &huge);
    });
}

#[test]
fn strangers_to_a_group_do_not_get_in() {
    guarded(|| {
        let mut scene = Scene::new();
        let victim = scene.victim();
        let mut join = |reason: &str, change: &dyn Fn(&mut tributary_wire::frame::Edge)| {
            scene.expect(reason, |scene| {
                let mut edge = edge(&victim, 0);
                change(&mut edge);
                let mut stream = scene.raw();
                stream.write_all(&Header { edge, message: Message::Join }.encode()).unwrap();
                until_closed(stream);
            });
        };
        join("forged-capability", &|edge| edge.capability = Capability::from_bytes([0; 16]));
        join("forged-capability", &|edge| edge.child = ChildIndex(1));
        join("forged-capability", &|edge| edge.child = ChildIndex(u16::MAX));
        join("unknown-group", &|edge| edge.epoch = Epoch(edge.epoch.0 - 1));
        join("unknown-group", &|edge| edge.group.0 = u32::MAX);
        // The group they wanted into is as good as new.
        let mut victims = members(&victim, Way::Shm);
        sum_once(&mut victims, 1.0);
    });
}

#[test]
fn frames_of_an_earlier_incarnation_are_refused() {
    guarded(|| {
        let mut scene = Scene::new();
        let old = scene.victim();
        for mut member in members(&old, Way::Tcp) {
            member.say(Message::Leave, &[]);
        }
        eventually("the old group is over", || status(&scene.fabric).groups.len() == 1);
        let new = scene.victim();
        assert_eq!(new.group, old.group, "the number is used again");
        assert_ne!(new.epoch, old.epoch);
        scene.expect("unknown-group", |scene| {
            let mut stream = scene.raw();
            let replay = Header { edge: edge(&old, 0), message: Message::Join };
            stream.write_all(&replay.encode()).unwrap();
            until_closed(stream);
        });
        sum_once(&mut members(&new, Way::Tcp), 1.0);
    });
}

#[test]
fn members_that_break_the_rules_take_only_their_group_with_them() {
    guarded(|| {
        let mut scene = Scene::new();
        let mut misbehave = |reason: &str, message: Message, payload: &[u8]| {
            scene.expect(reason, |scene| {
                let mut group = members(&scene.victim(), Way::Tcp);
                group[0].say(message, payload);
                for member in &mut group[1..] {
                    assert!(matches!(member.receive(), Err(End::Aborted(_))), "{reason}");
                }
            });
        };
        // More segments than were granted.
        misbehave("outside-window", Message::Request(part(1, 2)), &[0; 8]);
        misbehave("outside-window", Message::Request(part(1, 1 << 31)), &[0; 8]);
        // Down-going messages going up, and a second join.
        misbehave("wrong-direction", Message::Result(part(1, 0)), &[0; 8]);
        misbehave("wrong-direction", Message::Joined, &[]);
        misbehave("already-joined", Message::Join, &[]);
    });
}

#[test]
fn a_segment_longer_than_the_grant_is_refused() {
    guarded(|| {
        let mut scene = Scene::new();
        scene.expect("oversized", |scene| {
            let grant = scene.victim();
            let mut group = members(&grant, Way::Tcp);
            let first = group.remove(0);
            // Its own link would not send what is too long for the group.
            drop(first);
            for member in &mut group {
                assert!(matches!(member.receive(), Err(End::Aborted(_))));
            }
            let grant = scene.victim();
            let options = TcpOptions::new(2 * PAYLOAD_MAX_BYTES).unwrap();
            let address = grant.endpoints[0].address.tcp.parse().unwrap();
            let mut link = connect_tcp(address, options, WATCHDOG).unwrap();
            let edge = edge(&grant, 0);
            let join = Header { edge, message: Message::Join };
            assert_eq!(link.inject(&join.encode()), Ok(tributary_transport::Sent::Taken));
            let elements = PAYLOAD_MAX_BYTES / 8 + 1;
            let request = Header { edge, message: Message::Request(part(elements, 0)) };
            let payload = vec![0; elements as usize * 8];
            assert_eq!(
                link.send(&request.encode(), &payload),
                Ok(tributary_transport::Sent::Taken)
            );
            eventually("the link is closed", || link.receive().is_err());
        });
    });
}

#[test]
fn a_connection_that_never_joins_is_closed() {
    guarded(|| {
        let join_within = std::time::Duration::from_millis(300);
        let mut scene = Scene::with_limits(NodeLimits { join_within, ..NodeLimits::default() });
        scene.expect("never-joined", |scene| until_closed(scene.raw()));
    });
}

#[test]
fn silent_connectors_do_not_keep_others_out() {
    guarded(|| {
        let mut scene = Scene::with_limits(NodeLimits { links: 24, ..NodeLimits::default() });
        let silent: Vec<_> = (0..40).map(|_| scene.raw()).collect();
        let mut late = members(&scene.job.group(&hosts(4), 2, PAYLOAD_MAX_BYTES), Way::Tcp);
        sum_once(&mut late, 9.0);
        scene.sum();
        eventually("some were pushed out", || scene.refused("never-joined") > 0.0);
        drop(silent);
        scene.sum();
    });
}

#[test]
fn arbitrary_bytes_at_every_door_disturb_nobody() {
    guarded(|| {
        let mut scene = Scene::new();
        let mut random = Pcg64Mcg::seed_from_u64(0x7269_7665_7273);
        let victim = scene.victim();
        let join = Header { edge: edge(&victim, 0), message: Message::Join }.encode();
        let address = scene.leaf();
        for round in 0..300 {
            let mut bytes = vec![0; random.random_range(1..2048)];
            random.fill_bytes(&mut bytes);
            if round % 3 > 0 {
                // Something that looks right at first.
                let good = join.len().min(bytes.len());
                bytes[..good].copy_from_slice(&join[..good]);
                let at = random.random_range(0..good);
                bytes[at] ^= 1 << random.random_range(0..8);
            }
            if round % 2 == 0 {
                // The aggregator may close before everything is written.
                let _ = scene.raw().write_all(&bytes);
            } else {
                let path = address.shm.as_ref().unwrap();
                let _ = UnixStream::connect(path).unwrap().write_all(&bytes);
            }
            if round % 50 == 0 {
                scene.sum();
            }
        }
        scene.sum();
        sum_once(&mut members(&scene.victim(), Way::Shm), 1.0);
    });
}
