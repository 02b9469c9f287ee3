//! A veth link between two network namespaces, each of a thread of the test.
#![allow(clippy::print_stdout, reason = "says what was not possible")]

use std::net::{Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};

use rustix::thread::{UnshareFlags, gettid};
use tributary_af_xdp::ServiceAddress;
use tributary_rings::{Hook, IS_BUILT, Service, ServiceOptions};

/// This end's address; its interface is called `near`.
pub(crate) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 93, 0, 1);
/// The other end's.
pub(crate) const FAR: Ipv4Addr = Ipv4Addr::new(10, 93, 0, 2);
/// The same of IPv6.
#[allow(dead_code, reason = "some tests are of IPv4 alone")]
pub(crate) const NEAR_6: Ipv6Addr = Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, 1);
#[allow(dead_code, reason = "some tests are of IPv4 alone")]
pub(crate) const FAR_6: Ipv6Addr = Ipv6Addr::new(0xfd93, 0, 0, 0, 0, 0, 0, 2);

/// The other end's thread. It is told that the test is over when this is dropped.
pub(crate) struct Link {
    /// Its number.
    far: i32,
    is_over: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

#[allow(dead_code, reason = "some tests are of the link alone")]
impl Link {
    /// Changes the network of the other end, with the arguments of `ip`.
    pub(crate) fn far_ip(&self, arguments: &str) {
        let network = format!("--net=/proc/{}/task/{}/ns/net", std::process::id(), self.far);
        run(Command::new("nsenter").arg(network).arg("ip").args(arguments.split(' ')));
    }

    /// The same of this end.
    pub(crate) fn near_ip(&self, arguments: &str) {
        ip(arguments);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        self.thread.take().map(JoinHandle::join);
    }
}

/// Runs a test while a service is there, at a name that each network namespace has for itself.
#[allow(dead_code, reason = "some tests are of the link alone")]
pub(crate) fn with_service(hook: Hook, test: impl FnOnce(ServiceAddress)) {
    with_service_at("@rings", hook, test);
}

/// The same of a service of another name.
#[allow(dead_code, reason = "some tests have one service")]
pub(crate) fn with_service_at(name: &str, hook: Hook, test: impl FnOnce(ServiceAddress)) {
    let address: ServiceAddress = name.parse().unwrap();
    let service = Service::bind(ServiceOptions {
        address: address.clone(),
        hook,
        interfaces: Vec::new(),
        per_user_max: 2,
        socket_users: Vec::new(),
    });
    service.unwrap().serve_while(&|_| (), || test(address)).unwrap();
}

/// Runs `near` at one end of a link while `far` runs at the other, in namespaces of their own; each end has so many
/// queues. Where that is not possible, says why; a CI run must be able to.
pub(crate) fn on_a_link(
    queues: u32,
    far: impl FnOnce(&AtomicBool) + Send + 'static,
    near: impl FnOnce(Link) + Send + 'static,
) {
    let ran = thread::spawn(move || match connect(queues, far) {
        Ok(link) => near(link),
        Err(reason) => {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "not possible here: {reason}");
            println!("SKIPPED: {reason}");
        }
    });
    ran.join().unwrap();
}

/// Puts this thread into a network namespace of its own, with a link to that of another thread.
fn connect(queues: u32, far: impl FnOnce(&AtomicBool) + Send + 'static) -> Result<Link, String> {
    if !IS_BUILT {
        return Err("AF_XDP is not built".to_owned());
    }
    leave_network()?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (tell, told) = channel();
    let (connected, is_connected) = channel();
    let thread = thread::spawn({
        let is_over = Arc::clone(&is_over);
        move || {
            leave_network().unwrap();
            tell.send(gettid()).unwrap();
            is_connected.recv().unwrap();
            ip("addr add 10.93.0.2/24 dev far");
            ip("addr add fd93::2/64 dev far nodad");
            ip("link set far up");
            ip("route add 239.0.0.0/8 dev far");
            tell.send(gettid()).unwrap();
            far(&is_over);
        }
    });
    let number = told.recv().unwrap().as_raw_nonzero();
    let count = format!("numrxqueues {queues} numtxqueues {queues}");
    ip(&format!("link add near {count} type veth peer name far {count} netns {number}"));
    ip("addr add 10.93.0.1/24 dev near");
    ip("addr add fd93::1/64 dev near nodad");
    ip("link set near up");
    connected.send(()).unwrap();
    told.recv().unwrap();
    Ok(Link { far: number.get(), is_over, thread: Some(thread) })
}

fn leave_network() -> Result<(), String> {
    // SAFETY: this thread shares nothing else that a network namespace concerns.
    #[allow(unsafe_code, reason = "the call is unsafe for what other flags do")]
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET) };
    unshared.map_err(|error| format!("no network namespace: {error}"))
}

fn ip(words: &str) {
    run(Command::new("ip").args(words.split(' ')));
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
