//! Goal: communicators that are freed leave no descriptor behind, although their links stay until other hosts have all that was
//! sent. Method: two hosts of one process make, use and leave links again and again; then nothing may be open that was not.
//! A process of its own, so that no other test opens any.

use std::net::Ipv4Addr;
use std::thread;
use std::time::{Duration, Instant};

use tributary_inter_host::{
    DirectLinks, Identity, InterHost, InterHostOperation, Listener, wait_for_departures,
};

const COMMUNICATORS: u8 = 100;
const WATCHDOG: Duration = Duration::from_secs(30);
/// What the thread that watches links has: where it sleeps, and what wakes it.
const WATCH: usize = 2;

fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("there is a /proc").count()
}

/// Waits until no more descriptors are open than `allowed`.
fn must_come_down_to(allowed: usize) {
    let deadline = Instant::now() + WATCHDOG;
    while open_descriptors() > allowed {
        assert!(Instant::now() < deadline, "{} descriptors, {allowed} before", open_descriptors());
        thread::sleep(Duration::from_millis(1));
    }
}

fn use_and_leave(mut links: DirectLinks) {
    // SAFETY: a barrier has no buffers.
    unsafe { links.start(&InterHostOperation::BARRIER) }.expect("nobody has failed");
    while !links.poll().expect("nobody fails") {
        links.sleep(Duration::from_millis(5));
        links.check();
    }
    links.leave();
}

#[test]
fn links_that_all_hosts_have_left_are_closed() {
    let before = open_descriptors();
    for number in 0..COMMUNICATORS {
        let identity = Identity::from_bytes([number; Identity::BYTES], false);
        let listen = || Listener::bind(Ipv4Addr::LOCALHOST.into(), None).unwrap();
        let listeners = [listen(), listen()];
        let addresses: Vec<_> = listeners.iter().map(|(_, address)| *address).collect();
        let hosts = (0..).zip(listeners).map(|(host, (listener, _))| {
            let links = DirectLinks::new(host, identity, listener, addresses.clone());
            thread::spawn(move || use_and_leave(links))
        });
        for host in hosts.collect::<Vec<_>>() {
            host.join().unwrap();
        }
    }
    // Nobody asks whether they may end: what the other host says has to bring it about.
    must_come_down_to(before + WATCH);
    let began = Instant::now();
    wait_for_departures(WATCHDOG);
    assert!(began.elapsed() < WATCHDOG, "nothing is left to wait for");
}
