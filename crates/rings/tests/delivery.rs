//! Goal: datagrams that show what their receiver expects come into its ring, by every hook of the service, and everything else goes
//! through the network stack. Method: a link between two network namespaces, each of a
//! thread; plain sockets send from one end.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails here")]

mod link;

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use link::{FAR, FAR_6, Link, NEAR, NEAR_6};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_recv_buffer_size_force;
use tributary_af_xdp::{Admission, Delivery, OpenError, ServiceAddress};
use tributary_rings::Hook;

const WATCHDOG: Duration = Duration::from_secs(30);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 93, 0, 2);
const WORD: [u8; 8] = *b"a secret";
const OTHER_WORD: [u8; 8] = *b"a guess!";
const OFFSET: usize = 16;
const ADMISSION: Admission = Admission { offset_bytes: OFFSET as u16, word: WORD };
/// Hooks, and queues of the link.
const HOOKS: [(Hook, u32); 4] =
    [(Hook::TrafficControl, 1), (Hook::Generic, 1), (Hook::Native, 1), (Hook::Native, 3)];
/// As the program has them.
const RINGS: usize = 32;
const SLOTS: u32 = 64;
const PAYLOAD_BYTES_MAX: usize = 1472;

/// The other end, which does as it is told.
struct Far {
    orders: Sender<Order>,
    link: Link,
}

/// Send so many datagrams of a length, each with its number and a word, from one of two sockets.
struct Order {
    target: SocketAddr,
    count: u32,
    len_bytes: usize,
    word: [u8; 8],
    /// At once, each with numbers behind those of the one before.
    senders: u32,
}

impl Order {
    fn to(target: SocketAddr, count: u32) -> Self {
        Self { target, count, len_bytes: 100, word: WORD, senders: 1 }
    }
}

impl Far {
    fn send(&self, target: SocketAddr, count: u32) {
        self.orders.send(Order::to(target, count)).unwrap();
    }

    fn send_as(&self, target: SocketAddr, count: u32, len_bytes: usize, word: [u8; 8]) {
        self.orders.send(Order { len_bytes, word, ..Order::to(target, count) }).unwrap();
    }
}

fn payload(number: u32, len_bytes: usize, word: [u8; 8]) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..len_bytes).map(|at| (at as u32 * 7 + number) as u8).collect();
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload[OFFSET..][..8].copy_from_slice(&word);
    payload
}

fn number_of(payload: &[u8]) -> u32 {
    u32::from_be_bytes(payload[..4].try_into().unwrap())
}

fn obey(orders: &Receiver<Order>, is_over: &AtomicBool) {
    let sockets = [IpAddr::from(FAR), FAR_6.into()].map(|it| UdpSocket::bind((it, 9000)).unwrap());
    while !is_over.load(Ordering::Relaxed) {
        let order = orders.recv_timeout(Duration::from_millis(1));
        let Ok(Order { target, count, len_bytes, word, senders }) = order else { continue };
        let socket = &sockets[usize::from(target.is_ipv6())];
        thread::scope(|scope| {
            for sender in 0..senders {
                scope.spawn(move || {
                    for number in sender * count..(sender + 1) * count {
                        socket.send_to(&payload(number, len_bytes, word), target).unwrap();
                    }
                });
            }
        });
    }
}

/// Where the service of a test is, and where its programs sit.
struct Origin {
    service: ServiceAddress,
    hook: Hook,
}

impl std::fmt::Debug for Origin {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hook.fmt(f)
    }
}

/// Runs a test with a link and a service: with every hook, and with several queues.
fn on_a_link(test: fn(&Far, &Origin)) {
    for (hook, queues) in link::possible(&HOOKS) {
        on_a_link_alone(queues, move |far| {
            link::with_service(hook, |service| test(&far, &Origin { service, hook }));
        });
    }
}

/// The same without a service.
fn on_a_link_alone(queues: u32, test: impl FnOnce(Far) + Send + 'static) {
    let (orders, received) = channel();
    let far = move |is_over: &AtomicBool| obey(&received, is_over);
    link::on_a_link(queues, far, move |link| test(Far { orders, link }));
}

/// A socket of the near end, and a ring for what goes to it.
fn open(origin: &Origin) -> (UdpSocket, SocketAddr, Delivery) {
    open_at(NEAR.into(), origin)
}

fn open_at(near: IpAddr, origin: &Origin) -> (UdpSocket, SocketAddr, Delivery) {
    let socket = UdpSocket::bind((near, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let address = socket.local_addr().unwrap();
    let mut delivery = Delivery::open(near, &origin.service).unwrap();
    delivery.add(address, &socket, ADMISSION).unwrap();
    (socket, address, delivery)
}

fn receive(delivery: &mut Delivery) -> Vec<u8> {
    let until = Instant::now() + WATCHDOG;
    let mut buffer = [0; 2048];
    loop {
        if let Some((len_bytes, source)) = delivery.receive(&mut buffer) {
            assert!([FAR.into(), FAR_6.into()].contains(&source.ip()) && source.port() == 9000);
            return buffer[..len_bytes].to_vec();
        }
        assert!(Instant::now() < until, "nothing came");
    }
}

fn receive_by_socket(socket: &UdpSocket) -> Vec<u8> {
    let until = Instant::now() + WATCHDOG;
    let mut buffer = [0; 65_536];
    loop {
        match socket.recv(&mut buffer) {
            Ok(len_bytes) => return buffer[..len_bytes].to_vec(),
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        assert!(Instant::now() < until, "nothing came");
    }
}

fn is_empty(socket: &UdpSocket) -> bool {
    socket.recv(&mut [0; 16]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn datagrams_of_all_lengths_come_into_the_ring_in_order() {
    on_a_link(|far, origin| {
        let (socket, address, mut delivery) = open(origin);
        for len_bytes in (24..PAYLOAD_BYTES_MAX).step_by(97).chain([PAYLOAD_BYTES_MAX]) {
            far.send_as(address, 10, len_bytes, WORD);
            for number in 0..10 {
                assert_eq!(receive(&mut delivery), payload(number, len_bytes, WORD), "{origin:?}");
            }
        }
        assert!(delivery.is_empty());
        assert!(is_empty(&socket), "{origin:?}: nothing came through the network stack");
    });
}

/// Between two addresses of IPv6; one ring takes both families.
#[test]
fn datagrams_of_ipv6_come_into_the_ring_and_their_fragments_do_not() {
    on_a_link(|far, origin| {
        let (socket, address, mut delivery) = open_at(NEAR_6.into(), origin);
        let other = UdpSocket::bind((NEAR, 0)).unwrap();
        let of_ipv4 = other.local_addr().unwrap();
        delivery.add(of_ipv4, &other, ADMISSION).unwrap();
        for len_bytes in [24, 100, 1451, 1452] {
            far.send_as(address, 5, len_bytes, WORD);
            for number in 0..5 {
                assert_eq!(receive(&mut delivery), payload(number, len_bytes, WORD), "{origin:?}");
            }
            far.send_as(of_ipv4, 1, len_bytes, WORD);
            assert_eq!(receive(&mut delivery), payload(0, len_bytes, WORD), "{origin:?}");
        }
        assert!(delivery.is_empty() && is_empty(&socket));
        for (len_bytes, word) in [(100, OTHER_WORD), (1453, WORD), (4000, WORD)] {
            far.send_as(address, 1, len_bytes, word);
            assert_eq!(receive_by_socket(&socket), payload(0, len_bytes, word), "{origin:?}");
        }
        assert!(delivery.is_empty());
    });
}

/// An address of an interface that lies above another: a macvlan, as pods have, and a tunnel.
#[test]
fn datagrams_to_interfaces_above_others_come_into_the_ring() {
    on_a_link(|far, origin| {
        // They have no driver that could run a program.
        if origin.hook == Hook::Native {
            return;
        }
        let tunnel = "type vxlan id 93 dstport 4789 dev";
        let hardware = "02:00:00:00:00:93";
        far.link.near_ip(&format!(
            "link add link near name above address {hardware} type macvlan mode bridge"
        ));
        far.link.near_ip(&format!("link add tunnel {tunnel} near remote {FAR} local {NEAR}"));
        far.link.far_ip(&format!("link add tunnel {tunnel} far remote {NEAR} local {FAR}"));
        far.link.near_ip("addr add 10.94.0.1/24 dev above");
        far.link.near_ip("addr add 10.95.0.1/24 dev tunnel");
        far.link.far_ip("addr add 10.94.0.2/24 dev far");
        far.link.far_ip("addr add 10.95.0.2/24 dev tunnel");
        // The other interface would say that the address is its own.
        far.link.far_ip(&format!("neigh add 10.94.0.1 lladdr {hardware} dev far"));
        far.link.near_ip("link set above up");
        far.link.near_ip("link set tunnel up");
        far.link.far_ip("link set tunnel up");
        for near in [[10, 94, 0, 1], [10, 95, 0, 1]] {
            let (socket, address, mut delivery) = open_at(Ipv4Addr::from(near).into(), origin);
            for len_bytes in [100, 1400] {
                far.send_as(address, 10, len_bytes, WORD);
                for number in 0..10 {
                    let expected = payload(number, len_bytes, WORD);
                    assert_eq!(receive(&mut delivery), expected, "{origin:?}, {address}");
                }
            }
            assert!(delivery.is_empty() && is_empty(&socket), "{origin:?}, {address}");
        }
    });
}

/// The same interfaces have no driver, and a service whose programs are to sit there says which.
#[test]
fn an_interface_that_takes_no_program_in_its_driver_is_named() {
    on_a_link_alone(1, |far| {
        far.link.near_ip("link add link near name above type macvlan mode bridge");
        far.link.near_ip("addr add 10.94.0.1/24 dev above");
        link::with_service(Hook::Native, |service| {
            let error = Delivery::open(Ipv4Addr::new(10, 94, 0, 1).into(), &service);
            let problem = error.err().unwrap().to_string();
            assert!(problem.contains("interface above: "), "{problem}");
        });
    });
}

/// Processors that write into one ring at once. The order of datagrams is not theirs to keep: a sender may move from one processor to
/// another while what it has sent waits.
#[test]
fn what_several_senders_send_at_once_comes_once_each() {
    on_a_link(|far, origin| {
        let (socket, address, mut delivery) = open(origin);
        // Until this end's hardware address is known, few datagrams are kept.
        far.send(address, 1);
        assert_eq!(receive(&mut delivery), payload(0, 100, WORD));
        // What finds the ring full has room at the socket, also where an adapter spends a page on each datagram.
        set_socket_recv_buffer_size_force(&socket, 2 << 20).unwrap();
        let (senders, each) = (4_u32, 50_u32);
        let mut buffer = [0; 2048];
        for round in 0..100 {
            far.orders.send(Order { senders, ..Order::to(address, each) }).unwrap();
            let mut has_come = vec![false; (senders * each) as usize];
            let until = Instant::now() + WATCHDOG;
            while has_come.contains(&false) {
                let by_ring = delivery.receive(&mut buffer).map(|(len_bytes, _)| len_bytes);
                let Some(len_bytes) = by_ring.or_else(|| socket.recv(&mut buffer).ok()) else {
                    assert!(Instant::now() < until, "{origin:?}, {round}: {has_come:?}");
                    continue;
                };
                let number = number_of(&buffer);
                assert_eq!(buffer[..len_bytes], payload(number, 100, WORD));
                let is_again = std::mem::replace(&mut has_come[number as usize], true);
                assert!(!is_again, "{origin:?}, {round}: {number} came again");
            }
        }
        assert!(delivery.is_empty() && is_empty(&socket));
    });
}

#[test]
fn what_does_not_show_the_word_or_is_a_fragment_goes_through_the_network_stack() {
    on_a_link(|far, origin| {
        let (socket, address, mut delivery) = open(origin);
        far.send_as(address, 1, 100, OTHER_WORD);
        assert_eq!(receive_by_socket(&socket), payload(0, 100, OTHER_WORD));
        // Too short to show anything; to another port; and in fragments.
        let other = UdpSocket::bind((NEAR, 0)).unwrap();
        other.set_nonblocking(true).unwrap();
        far.send(other.local_addr().unwrap(), 1);
        assert_eq!(receive_by_socket(&other), payload(0, 100, WORD));
        far.send_as(address, 1, 4000, WORD);
        assert_eq!(receive_by_socket(&socket), payload(0, 4000, WORD));
        assert!(delivery.receive(&mut [0; 2048]).is_none(), "{origin:?}");
    });
}

#[test]
fn what_finds_the_ring_full_goes_through_the_network_stack() {
    on_a_link(|far, origin| {
        let (socket, address, mut delivery) = open(origin);
        far.send(address, SLOTS + 20);
        for number in SLOTS..SLOTS + 20 {
            assert_eq!(receive_by_socket(&socket), payload(number, 100, WORD), "{origin:?}");
        }
        for number in 0..SLOTS {
            assert_eq!(receive(&mut delivery), payload(number, 100, WORD), "{origin:?}");
        }
        far.send(address, 1);
        assert_eq!(receive(&mut delivery), payload(0, 100, WORD), "there is room again");
    });
}

/// One multicast for two rings, one of which is left before the end.
#[test]
fn multicasts_come_into_the_rings_of_all_receivers() {
    on_a_link(|far, origin| {
        let group = SocketAddr::from((GROUP, 9301));
        let socket = UdpSocket::bind(group).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.join_multicast_v4(&GROUP, &NEAR).unwrap();
        let (_one, _, mut one) = open(origin);
        let (_other, _, mut other) = open(origin);
        one.add(group, &socket, ADMISSION).unwrap();
        other.add(group, &socket, ADMISSION).unwrap();
        let differs = Admission { word: OTHER_WORD, ..ADMISSION };
        let refused =
            Delivery::open(NEAR.into(), &origin.service).unwrap().add(group, &socket, differs);
        assert!(matches!(refused, Err(OpenError::Claimed { target, .. }) if target == group));
        far.send(group, 3);
        for number in 0..3 {
            for delivery in [&mut one, &mut other] {
                assert_eq!(receive(delivery), payload(number, 100, WORD), "{origin:?}");
            }
        }
        drop(one);
        far.send(group, 3);
        for number in 0..3 {
            assert_eq!(receive(&mut other), payload(number, 100, WORD), "{origin:?}");
        }
        assert!(is_empty(&socket));
        drop(other);
        far.send(group, 1);
        assert_eq!(receive_by_socket(&socket), payload(0, 100, WORD), "{origin:?}");
    });
}

/// A sleeper is woken by the last datagram that it lacks, and by none before.
#[test]
fn a_sleeper_is_woken_once_for_all_that_it_lacks() {
    on_a_link(|far, origin| {
        let (socket, address, mut delivery) = open(origin);
        let is_woken = |milliseconds: u64| {
            let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            let time = Timespec {
                tv_sec: (milliseconds / 1000) as i64,
                tv_nsec: (milliseconds % 1000 * 1_000_000) as i64,
            };
            poll(&mut fds, Some(&time)).unwrap() == 1
        };
        for lacking in [1, 2, 7, 40] {
            assert!(delivery.arm(lacking), "{origin:?}: nothing is there");
            far.send(address, lacking - 1);
            assert!(!is_woken(20), "{origin:?}: one of {lacking} lacks");
            far.send(address, 1);
            assert!(is_woken(30_000), "{origin:?}: all {lacking} have come");
            delivery.disarm();
            assert_eq!(receive_by_socket(&socket), payload(0, 100, WORD));
            let numbers: Vec<_> = (0..lacking - 1).chain([0]).collect();
            for number in numbers {
                assert_eq!(receive(&mut delivery), payload(number, 100, WORD), "{origin:?}");
            }
            assert!(delivery.is_empty() && is_empty(&socket));
        }
        // It may not sleep while there is something, and is not woken while it does not.
        far.send(address, 1);
        let until = Instant::now() + WATCHDOG;
        while delivery.arm(1) {
            delivery.disarm();
            assert!(Instant::now() < until, "nothing came");
        }
        delivery.disarm();
        assert_eq!(receive(&mut delivery), payload(0, 100, WORD));
        far.send(address, 1);
        assert_eq!(receive(&mut delivery), payload(0, 100, WORD));
    });
}

/// A ring that was left with datagrams in it is empty for its next owner, and all its slots serve.
#[test]
fn rings_come_and_go_and_there_are_so_many() {
    on_a_link(|far, origin| {
        for round in 0..4 {
            let mut all: Vec<_> = (0..RINGS).map(|_| open(origin)).collect();
            let none = Delivery::open(NEAR.into(), &origin.service).err().unwrap();
            assert!(matches!(none, OpenError::Full { .. }), "{none}");
            for (_, address, _) in &all {
                far.send(*address, SLOTS + 1);
            }
            for (socket, _, delivery) in &mut all {
                // The order of datagrams is not the ring's: an adapter may change it.
                let mut numbers = vec![number_of(&receive_by_socket(socket))];
                if round % 2 == 0 {
                    continue;
                }
                let by_ring = (0..SLOTS).map(|_| number_of(&receive(delivery)));
                numbers.extend(by_ring);
                assert!(delivery.is_empty());
                numbers.sort_unstable();
                assert!(numbers.into_iter().eq(0..=SLOTS), "{origin:?}, round {round}");
            }
        }
    });
}

#[test]
fn what_a_ring_is_left_with_and_what_comes_later_is_nobodys() {
    on_a_link(|far, origin| {
        let (socket, address, delivery) = open(origin);
        drop(delivery);
        far.send(address, 1);
        assert_eq!(receive_by_socket(&socket), payload(0, 100, WORD), "{origin:?}");
        let nobody = Ipv4Addr::new(192, 0, 2, 1);
        let error = Delivery::open(nobody.into(), &origin.service).err().unwrap();
        assert_eq!(error.to_string(), "no network interface has the address 192.0.2.1");
        let _ = &far.link;
    });
}

/// What was in rings and what comes later goes through the network stack, and the next service serves again.
#[test]
fn a_service_that_ends_leaves_everything_to_the_network_stack() {
    on_a_link_alone(1, |far| {
        for _ in 0..2 {
            let mut left = None;
            link::with_service(Hook::TrafficControl, |service| {
                let origin = Origin { service, hook: Hook::TrafficControl };
                let (socket, address, mut delivery) = open(&origin);
                far.send(address, 1);
                assert_eq!(receive(&mut delivery), payload(0, 100, WORD));
                left = Some((socket, address, delivery, origin.service));
            });
            let (socket, address, mut delivery, service) = left.unwrap();
            assert!(delivery.arm(1), "it may sleep: its socket wakes it");
            far.send(address, 2);
            for number in 0..2 {
                assert_eq!(receive_by_socket(&socket), payload(number, 100, WORD));
            }
            assert!(delivery.is_empty());
            let error = Delivery::open(NEAR.into(), &service).err().unwrap();
            assert!(error.is_no_service(), "{error}");
        }
    });
}
