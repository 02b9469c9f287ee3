//! Goal: datagrams that show what their receiver expects come into its ring, by every hook, and everything else goes through the
//! network stack. Method: a veth link between two network namespaces, each of a thread; plain sockets send from one end.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails here")]

mod link;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use link::{FAR, Link, NEAR};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tributary_af_xdp::{Admission, Delivery, Hook, OpenError};

const WATCHDOG: Duration = Duration::from_secs(30);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 93, 0, 2);
const WORD: [u8; 8] = *b"a secret";
const OTHER_WORD: [u8; 8] = *b"a guess!";
const OFFSET: usize = 16;
const ADMISSION: Admission = Admission { offset_bytes: OFFSET as u16, word: WORD };
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
    target: SocketAddrV4,
    count: u32,
    len_bytes: usize,
    word: [u8; 8],
}

impl Far {
    fn send(&self, target: SocketAddrV4, count: u32) {
        self.send_as(target, count, 100, WORD);
    }

    fn send_as(&self, target: SocketAddrV4, count: u32, len_bytes: usize, word: [u8; 8]) {
        self.orders.send(Order { target, count, len_bytes, word }).unwrap();
    }
}

fn payload(number: u32, len_bytes: usize, word: [u8; 8]) -> Vec<u8> {
    let mut payload: Vec<u8> = (0..len_bytes).map(|at| (at as u32 * 7 + number) as u8).collect();
    payload[..4].copy_from_slice(&number.to_be_bytes());
    payload[OFFSET..][..8].copy_from_slice(&word);
    payload
}

fn obey(orders: &Receiver<Order>, is_over: &AtomicBool) {
    let socket = UdpSocket::bind((FAR, 9000)).unwrap();
    while !is_over.load(Ordering::Relaxed) {
        let order = orders.recv_timeout(Duration::from_millis(1));
        let Ok(Order { target, count, len_bytes, word }) = order else { continue };
        for number in 0..count {
            socket.send_to(&payload(number, len_bytes, word), target).unwrap();
        }
    }
}

/// Runs a test with a link, with every hook, and with several queues.
fn on_a_link(test: fn(&Far, Hook)) {
    for (hook, queues) in HOOKS {
        let (orders, received) = channel();
        let far = move |is_over: &AtomicBool| obey(&received, is_over);
        link::on_a_link(queues, far, move |link| test(&Far { orders, link }, hook));
    }
}

/// A socket of the near end, and a ring for what goes to it.
fn open(hook: Hook) -> (UdpSocket, SocketAddrV4, Delivery) {
    let socket = UdpSocket::bind((NEAR, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let SocketAddr::V4(address) = socket.local_addr().unwrap() else { panic!("bound to IPv4") };
    let mut delivery = Delivery::open(NEAR, hook).unwrap();
    delivery.add(address, ADMISSION).unwrap();
    (socket, address, delivery)
}

fn receive(delivery: &mut Delivery) -> Vec<u8> {
    let until = Instant::now() + WATCHDOG;
    let mut buffer = [0; 2048];
    loop {
        if let Some((len_bytes, source)) = delivery.receive(&mut buffer) {
            assert_eq!(source, SocketAddrV4::new(FAR, 9000));
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
    on_a_link(|far, hook| {
        let (socket, address, mut delivery) = open(hook);
        for len_bytes in (24..PAYLOAD_BYTES_MAX).step_by(97).chain([PAYLOAD_BYTES_MAX]) {
            far.send_as(address, 10, len_bytes, WORD);
            for number in 0..10 {
                assert_eq!(receive(&mut delivery), payload(number, len_bytes, WORD), "{hook:?}");
            }
        }
        assert!(delivery.is_empty());
        assert!(is_empty(&socket), "{hook:?}: nothing came through the network stack");
    });
}

#[test]
fn what_does_not_show_the_word_or_is_a_fragment_goes_through_the_network_stack() {
    on_a_link(|far, hook| {
        let (socket, address, mut delivery) = open(hook);
        far.send_as(address, 1, 100, OTHER_WORD);
        assert_eq!(receive_by_socket(&socket), payload(0, 100, OTHER_WORD));
        // Too short to show anything; to another port; and in fragments.
        let SocketAddr::V4(other) = ({
            let other = UdpSocket::bind((NEAR, 0)).unwrap();
            other.set_nonblocking(true).unwrap();
            let address = other.local_addr().unwrap();
            let SocketAddr::V4(v4) = address else { panic!("bound to IPv4") };
            far.send(v4, 1);
            assert_eq!(receive_by_socket(&other), payload(0, 100, WORD));
            address
        }) else {
            panic!("bound to IPv4")
        };
        assert_ne!(other, address);
        far.send_as(address, 1, 4000, WORD);
        assert_eq!(receive_by_socket(&socket), payload(0, 4000, WORD));
        assert!(delivery.receive(&mut [0; 2048]).is_none(), "{hook:?}");
    });
}

#[test]
fn what_finds_the_ring_full_goes_through_the_network_stack() {
    on_a_link(|far, hook| {
        let (socket, address, mut delivery) = open(hook);
        far.send(address, SLOTS + 20);
        for number in SLOTS..SLOTS + 20 {
            assert_eq!(receive_by_socket(&socket), payload(number, 100, WORD), "{hook:?}");
        }
        for number in 0..SLOTS {
            assert_eq!(receive(&mut delivery), payload(number, 100, WORD), "{hook:?}");
        }
        far.send(address, 1);
        assert_eq!(receive(&mut delivery), payload(0, 100, WORD), "there is room again");
    });
}

/// One multicast for two rings, one of which is left before the end.
#[test]
fn multicasts_come_into_the_rings_of_all_receivers() {
    on_a_link(|far, hook| {
        let group = SocketAddrV4::new(GROUP, 9301);
        let socket = UdpSocket::bind(group).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.join_multicast_v4(&GROUP, &NEAR).unwrap();
        let (_one, _, mut one) = open(hook);
        let (_other, _, mut other) = open(hook);
        one.add(group, ADMISSION).unwrap();
        other.add(group, ADMISSION).unwrap();
        let differs = Admission { word: OTHER_WORD, ..ADMISSION };
        let refused = Delivery::open(NEAR, hook).unwrap().add(group, differs);
        assert!(matches!(refused, Err(OpenError::Claimed { target, .. }) if target == group));
        far.send(group, 3);
        for number in 0..3 {
            for delivery in [&mut one, &mut other] {
                assert_eq!(receive(delivery), payload(number, 100, WORD), "{hook:?}");
            }
        }
        drop(one);
        far.send(group, 3);
        for number in 0..3 {
            assert_eq!(receive(&mut other), payload(number, 100, WORD), "{hook:?}");
        }
        assert!(is_empty(&socket));
        drop(other);
        far.send(group, 1);
        assert_eq!(receive_by_socket(&socket), payload(0, 100, WORD), "{hook:?}");
    });
}

/// A sleeper is woken by the last datagram that it lacks, and by none before.
#[test]
fn a_sleeper_is_woken_once_for_all_that_it_lacks() {
    on_a_link(|far, hook| {
        let (socket, address, mut delivery) = open(hook);
        let is_woken = |milliseconds: u64| {
            let mut fds = [PollFd::from_borrowed_fd(socket.as_fd(), PollFlags::IN)];
            let time = Timespec {
                tv_sec: (milliseconds / 1000) as i64,
                tv_nsec: (milliseconds % 1000 * 1_000_000) as i64,
            };
            poll(&mut fds, Some(&time)).unwrap() == 1
        };
        for lacking in [1, 2, 7, 40] {
            assert!(delivery.arm(lacking), "{hook:?}: nothing is there");
            far.send(address, lacking - 1);
            assert!(!is_woken(20), "{hook:?}: one of {lacking} lacks");
            far.send(address, 1);
            assert!(is_woken(30_000), "{hook:?}: all {lacking} have come");
            delivery.disarm();
            assert_eq!(receive_by_socket(&socket), payload(0, 100, WORD));
            let numbers: Vec<_> = (0..lacking - 1).chain([0]).collect();
            for number in numbers {
                assert_eq!(receive(&mut delivery), payload(number, 100, WORD), "{hook:?}");
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
    on_a_link(|far, hook| {
        for round in 0..3 {
            let mut all: Vec<_> = (0..RINGS).map(|_| open(hook)).collect();
            let none = Delivery::open(NEAR, hook).err().unwrap();
            assert!(matches!(none, OpenError::Full { .. }), "{none}");
            for (_, address, _) in &all {
                far.send(*address, SLOTS + 1);
            }
            for (socket, _, delivery) in &mut all {
                assert_eq!(receive_by_socket(socket), payload(SLOTS, 100, WORD), "round {round}");
                assert_eq!(receive(delivery), payload(0, 100, WORD), "{hook:?}, round {round}");
            }
        }
    });
}

#[test]
fn what_a_ring_is_left_with_and_what_comes_later_is_nobodys() {
    on_a_link(|far, hook| {
        let (socket, address, delivery) = open(hook);
        drop(delivery);
        far.send(address, 1);
        assert_eq!(receive_by_socket(&socket), payload(0, 100, WORD), "{hook:?}");
        let nobody = Ipv4Addr::new(192, 0, 2, 1);
        let error = Delivery::open(nobody, hook).err().unwrap();
        assert_eq!(error.to_string(), "no network interface has the address 192.0.2.1");
        let _ = &far.link;
    });
}
