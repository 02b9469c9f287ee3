//! Data by datagram: valid datagrams, and datagrams that must be dropped.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::num::NonZeroU16;
use std::time::{Duration, Instant};

use tributary_daemon::embedded::{Fabric, FabricOptions};
use tributary_manager::{ManagerConfig, MulticastRange};
use tributary_transport::{DatagramSocket, Sent};
use tributary_wire::Capability;
use tributary_wire::frame::{EVERYONE, Edge, Header, Message, Part, Subscription};

use crate::common::{
    Job, Member, WATCHDOG, Way, eventually, fabric, guarded, hosts, members, metric, part,
    sum_once, to_bytes,
};

/// A member whose data travel by datagram.
pub(crate) struct DatagramMember {
    pub(crate) member: Member,
    pub(crate) socket: DatagramSocket,
    pub(crate) node: SocketAddr,
    pub(crate) attempt: u8,
}

impl DatagramMember {
    /// Offers datagrams and probes the path.
    pub(crate) fn open(mut member: Member, address: &str) -> Self {
        let socket = DatagramSocket::bind(SocketAddr::from(([127, 0, 0, 1], 0))).unwrap();
        let ours = NonZeroU16::new(socket.address().unwrap().port());
        member.say(Message::Datagrams(ours), &[]);
        let (answer, _) = member.receive().unwrap();
        let Message::Datagrams(Some(theirs)) = answer.message else { panic!("{answer:?}") };
        let mut node: SocketAddr = address.parse().unwrap();
        node.set_port(theirs.get());
        let mut opened = Self { member, socket, node, attempt: 0 };
        opened.say(Message::Probe(3), &[]);
        assert_eq!(opened.receive().0.message, Message::Probed(3));
        opened
    }

    pub(crate) fn say(&mut self, message: Message, payload: &[u8]) {
        let header = Header { edge: self.member.edge, message }.encode();
        let key = self.member.key.as_ref();
        assert_eq!(self.socket.send(Some(self.node), &header, payload, key), Ok(Sent::Taken));
        assert_eq!(self.socket.flush(), Sent::Taken);
    }

    pub(crate) fn receive(&mut self) -> (Header, Vec<u8>) {
        let until = Instant::now() + WATCHDOG;
        loop {
            if let Some(datagram) = self.socket.receive().unwrap() {
                assert_eq!(datagram.source, self.node);
                assert!(self.member.key.is_none_or(|key| key.authenticates(&datagram.frame)));
                return (datagram.frame.header, datagram.frame.payload.to_vec());
            }
            assert!(Instant::now() < until, "nothing to receive");
            std::thread::sleep(Duration::from_micros(100));
        }
    }

    pub(crate) fn ask(&mut self, number: u32, value: f64) {
        let mut part = part(1, number);
        part.retransmit.attempt = self.attempt;
        self.say(Message::Request(part), &to_bytes(&[value]));
    }

    pub(crate) fn receive_sum(&mut self, number: u32) -> (Part, Vec<u8>) {
        let (header, payload) = self.receive();
        let Message::Result(got) = header.message else { panic!("{header:?}") };
        assert_eq!(got.sequence, part(1, number).sequence);
        (got, payload)
    }
}

/// A group of two whose members both speak by datagram, below one aggregator.
pub(crate) fn pair(fabric: &Fabric, job: &Job) -> [DatagramMember; 2] {
    let members = further_pair(job);
    assert_eq!(fabric.status().groups.len(), 1);
    members
}

/// The same beside other groups.
fn further_pair(job: &Job) -> [DatagramMember; 2] {
    let group = job.group(&hosts(2), 2, 64);
    let grants: Vec<_> = group.endpoints.iter().map(|it| it.address.tcp.clone()).collect();
    assert_eq!(grants[0], grants[1], "one node serves both");
    let mut members = members(&group, Way::Tcp).into_iter().zip(grants);
    [(); 2]
        .map(|()| members.next().map(|(it, address)| DatagramMember::open(it, &address)).unwrap())
}

#[test]
fn sums_travel_by_datagram_and_repeats_are_answered() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        one.ask(0, 1.5);
        // Not lost, but late: the answer to the repeat says so.
        one.attempt = 1;
        one.ask(0, 1.5);
        let sequence = part(1, 0).sequence;
        assert_eq!(one.receive().0.message, Message::Ack { sequence, attempt: 1 });
        two.ask(0, 2.25);
        for member in [&mut one, &mut two] {
            assert_eq!(member.receive_sum(0).1, to_bytes(&[3.75]));
        }
        // A member that asks again gets a lost result.
        one.attempt = 2;
        one.ask(0, 1.5);
        let (again, bytes) = one.receive_sum(0);
        assert_eq!((again.retransmit.attempt, bytes), (2, to_bytes(&[3.75])));
        // A later request shows that an earlier one was lost.
        (one.attempt, two.attempt) = (0, 0);
        one.ask(2, 1.0);
        let sequence = part(1, 1).sequence;
        assert_eq!(one.receive().0.message, Message::Nack { sequence });
        assert!(metric(&fabric, "root", "tributary_node_links", "") > 0.0);
        eventually("the counters", || {
            metric(&fabric, "root", "tributary_node_acks_total", "") == 1.0
                && metric(&fabric, "root", "tributary_node_nacks_total", "") == 1.0
                && metric(&fabric, "root", "tributary_node_repeats_total", "") == 2.0
                && metric(&fabric, "root", "tributary_node_datagrams_received_total", "") >= 7.0
        });
    });
}

#[test]
fn what_goes_by_datagram_and_what_by_link_meet_in_one_sum() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        for round in 0..50 {
            one.ask(round, f64::from(round));
            two.member.contribute(&[0.5]);
            assert_eq!(one.receive_sum(round).1, to_bytes(&[f64::from(round) + 0.5]));
            assert_eq!(two.member.result(), Ok(vec![f64::from(round) + 0.5]));
        }
    });
}

#[test]
fn strangers_datagrams_change_nothing_and_are_counted() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let put = |edge: Edge, message: Message, payload: &[u8]| {
            let bytes = [&Header { edge, message }.encode()[..], payload].concat();
            stranger.send_to(&bytes, one.node).unwrap();
        };
        let request = Message::Request(part(1, 0));
        let value = to_bytes(&[1e9]);
        let edge = one.member.edge;
        // The right capability from the wrong place; then all that can be wrong with an edge.
        put(edge, request, &value);
        put(Edge { capability: Capability::from_bytes([1; 16]), ..edge }, request, &value);
        put(
            Edge { epoch: tributary_wire::Epoch(edge.epoch.0.wrapping_sub(1)), ..edge },
            request,
            &value,
        );
        put(Edge { group: tributary_wire::GroupId(77), ..edge }, request, &value);
        put(Edge { child: tributary_wire::ChildIndex(9), ..edge }, request, &value);
        // What no child may say, and what only a link carries.
        put(edge, Message::Result(part(1, 0)), &value);
        stranger.send_to(b"TRIBUTARY", one.node).unwrap();
        for number in 0..1000 {
            stranger.send_to(&[number as u8; 90], one.node).unwrap();
        }
        one.say(Message::Leave, &[]);
        one.ask(0, 1.0);
        two.ask(0, 2.0);
        for member in [&mut one, &mut two] {
            assert_eq!(member.receive_sum(0).1, to_bytes(&[3.0]));
        }
        let dropped =
            |label: &str| metric(&fabric, "root", "tributary_node_datagrams_dropped_total", label);
        eventually("all are counted", || {
            dropped("wrong-source") == 1.0
                && dropped("no-edge") == 6.0
                && dropped("not-queued") == 1001.0
        });
        let refused = metric(&fabric, "root", "tributary_node_refused_total", "");
        assert_eq!(refused, 0.0, "no link is closed for what strangers say");
    });
}

/// The kernel drops them after a while, at groups that come later, too; members notice nothing.
#[test]
fn strangers_who_go_on_do_not_reach_the_node() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let job = Job::admit(&fabric);
        let [mut one, mut two] = pair(&fabric, &job);
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let edge = Edge { capability: Capability::from_bytes([1; 16]), ..one.member.edge };
        let forged = Header { edge, message: Message::Request(part(1, 0)) }.encode();
        let forged = [&forged[..], &to_bytes(&[1e9])].concat();
        let node = one.node;
        let dropped =
            |label: &str| metric(&fabric, "root", "tributary_node_datagrams_dropped_total", label);
        let mut sent = 0.0;
        let mut forge_until_filtered = || {
            let before = dropped("not-queued");
            eventually("the kernel drops them", || {
                for _ in 0..10 {
                    stranger.send_to(&forged, node).unwrap();
                    sent += 1.0;
                }
                dropped("not-queued") > before
            });
            eventually("all are counted", || dropped("no-edge") + dropped("not-queued") == sent);
        };
        let sum = |members: [&mut DatagramMember; 2], number| {
            let [one, two] = members;
            one.ask(number, 1.0);
            two.ask(number, f64::from(number));
            for member in [one, two] {
                assert_eq!(member.receive_sum(number).1, to_bytes(&[1.0 + f64::from(number)]));
            }
        };
        forge_until_filtered();
        let refused = dropped("no-edge");
        assert!(refused >= 32.0, "the node refused {refused} itself");
        sum([&mut one, &mut two], 0);
        let [mut three, mut four] = further_pair(&job);
        forge_until_filtered();
        for number in 0..20 {
            sum([&mut three, &mut four], number);
            sum([&mut one, &mut two], 1 + number);
        }
        assert!(dropped("no-edge") >= refused + 32.0, "a new group is told of no filter");
    });
}

#[test]
fn an_old_groups_datagrams_do_not_reach_the_new_one() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let job = Job::admit(&fabric);
        let [old, other] = pair(&fabric, &job);
        let (edge, node) = (old.member.edge, old.node);
        let old_socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        drop((old, other));
        eventually("the group ends", || fabric.status().groups.is_empty());
        let [mut one, mut two] = pair(&fabric, &job);
        assert_eq!(one.member.edge.group, edge.group, "the number is used again");
        let replayed = [&Header { edge, message: Message::Request(part(1, 0)) }.encode()[..]];
        let replayed = [replayed[0], &to_bytes(&[1e9])].concat();
        old_socket.send_to(&replayed, node).unwrap();
        one.ask(0, 1.0);
        two.ask(0, 2.0);
        assert_eq!(two.receive_sum(0).1, to_bytes(&[3.0]));
        let dropped =
            || metric(&fabric, "root", "tributary_node_datagrams_dropped_total", "no-edge");
        eventually("the replay is counted", || dropped() >= 1.0);
    });
}

#[test]
fn a_node_without_datagrams_says_so() {
    guarded(|| {
        let options = FabricOptions { datagram_payload_max_bytes: 0, ..FabricOptions::default() };
        let fabric = Fabric::start(&options).unwrap();
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(2), 2, 64);
        let mut members = members(&group, Way::Tcp);
        members[0].say(Message::Datagrams(NonZeroU16::new(9)), &[]);
        assert_eq!(members[0].receive().unwrap().0.message, Message::Datagrams(None));
        sum_once(&mut members, 1.0);
    });
}

#[test]
fn nodes_speak_by_datagram_among_themselves() {
    guarded(|| {
        let options = FabricOptions { shared_memory: false, ..FabricOptions::default() };
        let fabric = Fabric::start(&options).unwrap();
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(2), 2, 64);
        let mut members = members(&group, Way::Tcp);
        let sent = |node: &str| metric(&fabric, node, "tributary_node_datagrams_sent_total", "");
        eventually("a probe", || sent("leaf0") > 0.0 && sent("leaf1") > 0.0);
        // The path is open once the answer has arrived.
        eventually("sums by datagram", || {
            sum_once(&mut members, 1.0);
            ["root", "leaf0", "leaf1"].iter().all(|node| sent(node) > 20.0)
        });
        let silent = metric(&fabric, "leaf0", "tributary_node_silent_edges_total", "");
        assert_eq!(silent, 0.0);
    });
}

/// A fabric whose groups have multicast addresses, on loopback.
fn multicasting(port: u16) -> Fabric {
    let first = Ipv4Addr::new(239, 255, 71, 0);
    let range = MulticastRange { first, addresses: 16, port };
    let manager_limits = ManagerConfig { multicast: Some(range), ..ManagerConfig::default() };
    let options = FabricOptions { leaves: 0, manager_limits, ..FabricOptions::default() };
    Fabric::start(&options).unwrap()
}

#[test]
fn results_are_multicast_and_subscribers_get_no_copies() {
    guarded(|| {
        let fabric = multicasting(7475);
        let job = Job::admit(&fabric);
        let group = job.group(&hosts(2), 2, 64);
        let grant = group.multicast.clone().expect("a multicast address");
        let mut socket =
            DatagramSocket::subscribe(grant.address.parse().unwrap(), Ipv4Addr::LOCALHOST).unwrap();
        let address = group.endpoints[0].address.tcp.clone();
        let mut opened =
            members(&group, Way::Tcp).into_iter().map(|it| DatagramMember::open(it, &address));
        let [mut one, mut two] = [(); 2].map(|()| opened.next().unwrap());
        for round in 0..8 {
            one.ask(round, 1.0);
            two.ask(round, 2.0);
            let (header, payload) = receive(&mut socket);
            let edge = one.member.edge;
            let everyones = Edge { child: EVERYONE, capability: grant.capability, ..edge };
            assert_eq!(header.edge, everyones);
            assert_eq!(payload, to_bytes(&[3.0]));
            assert_eq!(two.receive_sum(round).1, to_bytes(&[3.0]), "it never subscribed");
            if round == 0 {
                assert_eq!(one.receive_sum(round).1, to_bytes(&[3.0]));
            }
            one.member.say(Message::Subscribed(Subscription::Here), &[]);
            // The subscription and the next request travel apart.
            std::thread::sleep(Duration::from_millis(20));
        }
        // A subscriber that receives nothing repeats its request.
        one.attempt = 1;
        one.ask(7, 1.0);
        assert_eq!(one.receive_sum(7).1, to_bytes(&[3.0]));
        let count = |name: &str| metric(&fabric, "root", name, "");
        eventually("the counters", || {
            count("tributary_node_multicasts_total") == 8.0
                && count("tributary_node_copies_spared_total") == 7.0
        });
    });
}

fn receive(socket: &mut DatagramSocket) -> (Header, Vec<u8>) {
    let until = Instant::now() + WATCHDOG;
    loop {
        if let Some(datagram) = socket.receive().unwrap() {
            return (datagram.frame.header, datagram.frame.payload.to_vec());
        }
        assert!(Instant::now() < until, "nothing is multicast");
        std::thread::sleep(Duration::from_micros(100));
    }
}
