//! Goal: datagrams of a port come past the network stack, and leave so; everything else goes through it. Method: a
//! link between two network namespaces, each of a thread; one end has ports, the other plain sockets.
#![allow(clippy::unwrap_used, reason = "a test that can't go on fails here")]

mod link;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use link::{FAR, Link, NEAR};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tributary_af_xdp::{PAYLOAD_BYTES_MAX, Port, ServiceAddress, Taken};
use tributary_rings::Hook;

const WATCHDOG: Duration = Duration::from_secs(30);
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 93, 0, 1);
const ECHO: SocketAddrV4 = SocketAddrV4::new(FAR, 7);

/// The other end: whatever comes to port 7 goes back, and orders are followed.
struct Far {
    orders: Sender<Order>,
    _link: Link,
}

/// Send so many datagrams to an address, each with its number.
struct Order(SocketAddrV4, u32);

impl Far {
    fn send(&self, target: SocketAddrV4, count: u32) {
        self.orders.send(Order(target, count)).unwrap();
    }
}

fn echo(orders: &Receiver<Order>, is_over: &AtomicBool) {
    let socket = UdpSocket::bind(ECHO).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let mut buffer = [0; 9000];
    while !is_over.load(Ordering::Relaxed) {
        for Order(target, count) in orders.try_iter() {
            for number in 0..count {
                socket.send_to(&number.to_be_bytes(), target).unwrap();
            }
        }
        match socket.recv_from(&mut buffer) {
            Ok((len_bytes, source)) => {
                socket.send_to(&buffer[..len_bytes], source).unwrap();
            }
            Err(error) => {
                let is_timeout =
                    matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                assert!(is_timeout, "{error}");
            }
        }
    }
}

/// Runs a test with a link and a service, in both modes, and with several queues.
fn on_a_link(test: fn(&Far, &ServiceAddress)) {
    let hooks = [(Hook::Generic, 1), (Hook::Native, 1), (Hook::Native, 3)];
    for (hook, queues) in link::possible(&hooks) {
        let (orders, received) = channel();
        let far = move |is_over: &AtomicBool| echo(&received, is_over);
        link::on_a_link(queues, far, move |link| {
            let far = Far { orders, _link: link };
            link::with_service(hook, |service| {
                if link::has_sockets(hook) {
                    return test(&far, &service);
                }
                let (socket, address) = bound();
                let problem =
                    Port::open(NEAR, address, &socket, &service).err().unwrap().to_string();
                assert!(problem.contains("a bond"), "{problem}");
            });
        });
    }
}

/// A socket at a port of the near end.
fn bound() -> (UdpSocket, SocketAddrV4) {
    let socket = UdpSocket::bind((NEAR, 0)).unwrap();
    socket.set_nonblocking(true).unwrap();
    let SocketAddr::V4(address) = socket.local_addr().unwrap() else { panic!("bound to IPv4") };
    (socket, address)
}

/// The same, and the port itself.
fn open(service: &ServiceAddress) -> (UdpSocket, Port) {
    let (socket, address) = bound();
    let port = Port::open(NEAR, address, &socket, service).unwrap();
    (socket, port)
}

fn receive(port: &mut Port) -> Vec<u8> {
    let until = Instant::now() + WATCHDOG;
    let mut buffer = [0; 2048];
    loop {
        if let Some((len_bytes, source)) = port.receive(&mut buffer) {
            assert_eq!(source, ECHO);
            return buffer[..len_bytes].to_vec();
        }
        assert!(Instant::now() < until, "nothing came");
    }
}

fn send(port: &mut Port, payload: &[u8]) {
    assert_eq!(port.send(ECHO, [payload]), Taken { count: 1, is_sent: true });
}

/// Sends through the network stack, and learns the way from what comes back past it.
fn learn(socket: &UdpSocket, port: &mut Port) {
    assert!(!port.can_send());
    let ignored = port.send(ECHO, [&b"too early"[..]]);
    assert_eq!(ignored.count, 0, "no way is known");
    socket.send_to(b"hello", ECHO).unwrap();
    assert_eq!(receive(port), b"hello");
    assert!(!port.can_send(), "it could have been forged");
    port.confirm();
    assert!(port.can_send());
}

fn is_empty(socket: &UdpSocket) -> bool {
    socket.recv(&mut [0; 16]).is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
}

#[test]
fn datagrams_of_all_lengths_come_and_go_past_the_network_stack() {
    on_a_link(|_, service| {
        let (socket, mut port) = open(service);
        learn(&socket, &mut port);
        let mut random = Pcg64::seed_from_u64(1);
        for len_bytes in (0..=PAYLOAD_BYTES_MAX).step_by(7).chain([PAYLOAD_BYTES_MAX]) {
            let payload: Vec<u8> = (0..len_bytes).map(|_| random.random()).collect();
            send(&mut port, &payload);
            assert_eq!(receive(&mut port), payload);
        }
        assert!(is_empty(&socket), "nothing came through the network stack");
        let too_long = port.send(ECHO, [&[0; PAYLOAD_BYTES_MAX + 1][..]]);
        assert_eq!(too_long.count, 0);
    });
}

#[test]
fn several_datagrams_leave_together_and_come_in_order() {
    on_a_link(|_, service| {
        let (socket, mut port) = open(service);
        learn(&socket, &mut port);
        let payloads: Vec<_> = (0..40_u8).map(|number| [number; 100]).collect();
        for _ in 0..50 {
            let taken = port.send(ECHO, payloads.iter().map(|it| &it[..]));
            assert_eq!(taken.count, 40);
            for payload in &payloads {
                assert_eq!(receive(&mut port), payload);
            }
        }
    });
}

#[test]
fn others_datagrams_go_through_the_network_stack() {
    on_a_link(|_, service| {
        let (socket, mut port) = open(service);
        learn(&socket, &mut port);
        let other = UdpSocket::bind((NEAR, 0)).unwrap();
        other.set_read_timeout(Some(WATCHDOG)).unwrap();
        other.send_to(b"mine", ECHO).unwrap();
        let mut buffer = [0; 9000];
        assert_eq!(other.recv(&mut buffer).unwrap(), 4);
        // In fragments: the program knows only whole datagrams.
        socket.send_to(&[1; 4000], ECHO).unwrap();
        let until = Instant::now() + WATCHDOG;
        while socket.recv(&mut buffer).ok() != Some(4000) {
            assert!(Instant::now() < until, "nothing came");
        }
        assert_eq!(port.receive(&mut buffer), None);
    });
}

#[test]
fn multicast_comes_past_the_network_stack_too() {
    on_a_link(|far, service| {
        let group = SocketAddrV4::new(GROUP, 9300);
        let socket = UdpSocket::bind(group).unwrap();
        socket.set_nonblocking(true).unwrap();
        socket.join_multicast_v4(&GROUP, &NEAR).unwrap();
        let mut port = Port::open(NEAR, group, &socket, service).unwrap();
        far.send(group, 3);
        for number in 0..3_u32 {
            assert_eq!(receive(&mut port), number.to_be_bytes());
        }
        assert!(is_empty(&socket));
    });
}

/// Packets beyond what ports hold are lost, those of the one that polls are not.
#[test]
fn ports_that_are_flooded_cost_the_others_nothing() {
    on_a_link(|far, service| {
        let mut flooded = [(); 5].map(|()| open(service));
        let (socket, mut port) = open(service);
        learn(&socket, &mut port);
        for (flooded, _) in &flooded {
            let SocketAddr::V4(target) = flooded.local_addr().unwrap() else {
                panic!("bound to IPv4")
            };
            far.send(target, 3000);
        }
        let mut buffer = [0; 16];
        for number in 0..200_u32 {
            let until = Instant::now() + WATCHDOG;
            send(&mut port, &number.to_be_bytes());
            let mut sent_at = Instant::now();
            loop {
                if let Some((len_bytes, _)) = port.receive(&mut buffer) {
                    if buffer[..len_bytes] == number.to_be_bytes() {
                        break;
                    }
                } else if sent_at.elapsed() > Duration::from_millis(20) {
                    // What found the queue full is lost, as anywhere in a network.
                    send(&mut port, &number.to_be_bytes());
                    sent_at = Instant::now();
                }
                assert!(Instant::now() < until, "datagram {number} never came back");
            }
        }
        let held = flooded
            .each_mut()
            .map(|(_, idle)| std::iter::from_fn(|| idle.receive(&mut buffer)).take(257).count());
        assert!(held.iter().all(|held| *held <= 256), "{held:?}: a port's share");
        assert!((1..=1024).contains(&held.iter().sum::<usize>()), "{held:?}: what all may hold");
    });
}

#[test]
fn a_sleeper_is_woken_although_another_port_takes_the_packet() {
    on_a_link(|far, service| {
        let (_socket, mut busy) = open(service);
        let (sleeping, mut port) = open(service);
        let SocketAddr::V4(target) = sleeping.local_addr().unwrap() else {
            panic!("bound to IPv4")
        };
        for round in 0..20 {
            assert!(port.arm(), "nothing is there");
            far.send(target, 1);
            // The other port polls and takes the packet, before or after the sleeper begins to sleep.
            let until = Instant::now() + Duration::from_millis(20);
            let taker = move |busy: &mut Port| {
                while Instant::now() < until {
                    assert_eq!(busy.receive(&mut [0; 16]), None);
                }
            };
            thread::scope(|scope| {
                scope.spawn(|| taker(&mut busy));
                let mut fds = [PollFd::from_borrowed_fd(port.as_fd(), PollFlags::IN)];
                let time = Timespec { tv_sec: WATCHDOG.as_secs() as i64, tv_nsec: 0 };
                let woken = poll(&mut fds, Some(&time)).unwrap();
                assert_eq!(woken, 1, "round {round}: it was never woken");
            });
            port.disarm();
            assert_eq!(receive(&mut port), 0_u32.to_be_bytes());
        }
        far.send(target, 1);
        let until = Instant::now() + WATCHDOG;
        while port.arm() {
            port.disarm();
            assert!(Instant::now() < until, "nothing came");
        }
        port.disarm();
        assert_eq!(receive(&mut port), 0_u32.to_be_bytes());
    });
}

#[test]
fn an_interface_is_one_users_and_what_its_last_port_had_goes_through_the_stack() {
    on_a_link(|_, service| {
        let (socket, port) = open(service);
        // As another process would, of another service.
        link::with_service_at("@others", Hook::Generic, |other| {
            let socket = UdpSocket::bind((NEAR, 5000)).unwrap();
            let refused = Port::open(NEAR, SocketAddrV4::new(NEAR, 5000), &socket, &other);
            let problem = refused.err().unwrap().to_string();
            assert!(problem.ends_with("another process has it for XDP"), "{problem}");
        });
        drop(port);
        socket.send_to(b"again", ECHO).unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(WATCHDOG)).unwrap();
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 5);
        let (_socket, mut second) = open(service);
        assert_eq!(second.receive(&mut [0; 16]), None);
    });
}

#[test]
fn an_address_of_nobody_is_named() {
    let nobody = Ipv4Addr::new(192, 0, 2, 1);
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let service = "@nobodys".parse().unwrap();
    let error = Port::open(nobody, SocketAddrV4::new(nobody, 5000), &socket, &service);
    assert_eq!(error.err().unwrap().to_string(), "no network interface has the address 192.0.2.1");
}

#[test]
fn what_a_service_ends_with_goes_through_the_stack_and_leaves_what_is_sent_to_it() {
    let (orders, received) = channel();
    let far = move |is_over: &AtomicBool| echo(&received, is_over);
    link::on_a_link(1, far, move |link| {
        let far = Far { orders, _link: link };
        let mut left = None;
        link::with_service(Hook::Generic, |service| {
            let (socket, mut port) = open(&service);
            learn(&socket, &mut port);
            left = Some((socket, port));
        });
        let (socket, port) = left.unwrap();
        socket.set_nonblocking(false).unwrap();
        socket.set_read_timeout(Some(WATCHDOG)).unwrap();
        let SocketAddr::V4(address) = socket.local_addr().unwrap() else { panic!("bound to IPv4") };
        far.send(address, 1);
        assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 4);
        drop(port);
    });
}

/// Resident memory in KiB, and descriptors.
fn held_by_this_process() -> (u64, usize) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    let resident = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    (resident, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

#[test]
fn ports_that_come_and_go_leave_neither_memory_nor_descriptors() {
    on_a_link(|_, service| {
        let mut before = (0, 0);
        for round in 0..200 {
            let (socket, mut port) = open(service);
            learn(&socket, &mut port);
            if round == 9 {
                before = held_by_this_process();
            }
        }
        let (resident, descriptors) = held_by_this_process();
        // Other tests run beside this one, each with interfaces of 5 MiB.
        assert!(resident < before.0 + (192 << 10), "{} KiB, then {resident}", before.0);
        assert!(descriptors < before.1 + 150, "{} descriptors, then {descriptors}", before.1);
    });
}
