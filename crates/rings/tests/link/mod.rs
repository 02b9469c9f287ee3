//! A link between two network namespaces, each of a thread of the test.
//!
//! It is of veth interfaces, unless `TRIBUTARY_TEST_LINK` names two adapters of this machine that are wired to each other, and what lies
//! on them: `adapters:eth0,eth1`, `vlan:eth0,eth1` or `bond:eth0,eth1`. `tests/kernels/rings.py` has such a machine.
#![allow(clippy::print_stdout, reason = "says what was not possible")]

use std::io::ErrorKind;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, UdpSocket};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

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

const CONNECTED_WITHIN: Duration = Duration::from_secs(60);

/// What has the addresses at both ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Veth,
    Adapters,
    Vlan,
    Bond,
}

/// The kind of link, and the adapters below its ends.
fn kind() -> (Kind, Vec<String>) {
    let Ok(text) = std::env::var("TRIBUTARY_TEST_LINK") else { return (Kind::Veth, Vec::new()) };
    let (kind, adapters) = text.split_once(':').expect("a kind and adapters");
    let kind = match kind {
        "adapters" => Kind::Adapters,
        "vlan" => Kind::Vlan,
        "bond" => Kind::Bond,
        _ => panic!("TRIBUTARY_TEST_LINK: {text}"),
    };
    (kind, adapters.split(',').map(str::to_owned).collect())
}

/// Those hooks and numbers of queues that the link has.
#[allow(dead_code, reason = "some tests are of the link alone")]
pub(crate) fn possible(hooks: &[(Hook, u32)]) -> Vec<(Hook, u32)> {
    let (kind, _) = kind();
    let is_possible = |&(hook, queues): &(Hook, u32)| match kind {
        Kind::Veth => true,
        // A VLAN has no driver.
        Kind::Vlan => queues == 1 && hook != Hook::Native,
        Kind::Adapters | Kind::Bond => queues == 1,
    };
    hooks.iter().copied().filter(is_possible).collect()
}

/// Whether a service whose programs sit there has sockets of AF_XDP for the link: a bond's get nothing from its adapters' drivers.
#[allow(dead_code, reason = "some tests are of rings alone")]
pub(crate) fn has_sockets(hook: Hook) -> bool {
    kind().0 != Kind::Bond || hook != Hook::Native
}

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
        give_back("near");
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
            lay("far");
            ip("addr add 10.93.0.2/24 dev far");
            ip("addr add fd93::2/64 dev far nodad");
            ip("link set far up");
            ip("route add 239.0.0.0/8 dev far");
            tell.send(gettid()).unwrap();
            far(&is_over);
            give_back("far");
        }
    });
    let number = told.recv().unwrap().as_raw_nonzero();
    if kind().0 == Kind::Veth {
        let count = format!("numrxqueues {queues} numtxqueues {queues}");
        ip(&format!("link add near {count} type veth peer name far {count} netns {number}"));
    }
    lay("near");
    ip("addr add 10.93.0.1/24 dev near");
    ip("addr add fd93::1/64 dev near nodad");
    ip("link set near up");
    connected.send(()).unwrap();
    told.recv().unwrap();
    if kind().0 != Kind::Veth {
        let ends = [(NEAR.into(), FAR.into()), (NEAR_6.into(), FAR_6.into())];
        ends.into_iter().for_each(wait_until_connected);
    }
    Ok(Link { far: number.get(), is_over, thread: Some(thread) })
}

/// Makes the interface of an end out of an adapter, if there is one: it comes from the network of this machine.
fn lay(end: &str) {
    let (kind, adapters) = kind();
    let Some(adapter) = adapters.get(usize::from(end == "far")) else { return };
    let here = gettid().as_raw_nonzero();
    let words = format!("--net=/proc/1/ns/net ip link set {adapter} netns {here}");
    run(Command::new("nsenter").args(words.split(' ')));
    match kind {
        Kind::Veth => {}
        Kind::Adapters => ip(&format!("link set {adapter} name {end}")),
        Kind::Vlan => {
            ip(&format!("link set {adapter} up"));
            ip(&format!("link add link {adapter} name {end} type vlan id 93"));
        }
        Kind::Bond => {
            ip(&format!("link add {end} type bond mode active-backup"));
            ip(&format!("link set {adapter} master {end}"));
        }
    }
}

/// Gives the adapter of an end back to the network of this machine.
fn give_back(end: &str) {
    let (kind, adapters) = kind();
    let Some(adapter) = adapters.get(usize::from(end == "far")) else { return };
    // What a test has laid on it would stay there. Not all of these can be deleted.
    let interfaces = Command::new("ip").args(["-br", "link"]).output().unwrap().stdout;
    let interfaces = String::from_utf8(interfaces).unwrap();
    let names = interfaces.lines().filter_map(|line| line.split([' ', '@']).next());
    for name in names.filter(|name| ![end, adapter, "lo"].contains(name)) {
        let _ = Command::new("ip").args(["link", "del", name]).output();
    }
    if kind == Kind::Adapters {
        ip(&format!("link set {end} down"));
        ip(&format!("link set {end} name {adapter}"));
    } else {
        ip(&format!("link del {end}"));
    }
    ip(&format!("link set {adapter} netns 1"));
}

/// Waits until both ends know each other's hardware address, as those of a veth link do at once. Datagrams that wait for that may be
/// overtaken by later ones.
fn wait_until_connected((near, far): (IpAddr, IpAddr)) {
    let until = Instant::now() + CONNECTED_WITHIN;
    let socket = UdpSocket::bind((near, 0)).unwrap();
    // Nobody listens there.
    socket.connect((far, 9)).unwrap();
    socket.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let is_refused = |it: &std::io::Error| it.kind() == ErrorKind::ConnectionRefused;
    loop {
        let sent = socket.send(b"there?");
        if sent.and_then(|_| socket.recv(&mut [0; 8])).is_err_and(|error| is_refused(&error)) {
            break;
        }
        assert!(Instant::now() < until, "{far} does not answer");
    }
}

fn leave_network() -> Result<(), String> {
    let is_veth = kind().0 == Kind::Veth;
    let mounts = if is_veth { UnshareFlags::empty() } else { UnshareFlags::NEWNS };
    // SAFETY: this thread shares nothing else that a network namespace concerns, or one of mounts.
    #[allow(unsafe_code, reason = "the call is unsafe for what other flags do")]
    let unshared = unsafe { rustix::thread::unshare_unsafe(UnshareFlags::NEWNET | mounts) };
    unshared.map_err(|error| format!("no network namespace: {error}"))?;
    if !is_veth {
        // Queues are looked for there at an interface whose driver does not count them.
        run(Command::new("mount").args(["-t", "sysfs", "none", "/sys"]));
    }
    Ok(())
}

fn ip(words: &str) {
    run(Command::new("ip").args(words.split(' ')));
}

fn run(command: &mut Command) {
    let done = command.output().unwrap();
    assert!(done.status.success(), "{command:?}: {}", String::from_utf8_lossy(&done.stderr));
}
