//! Processes that ask for what is not theirs: connections stand for them, at loopback in a network namespace of a thread.

use std::net::{Ipv4Addr, TcpListener, UdpSocket};
use std::process::Command;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::thread::{UnshareFlags, unshare_unsafe};

use tributary_af_xdp::{Connection, OpenError, Reader, map_rings};

use super::*;
use crate::IS_BUILT;

const HERE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const GROUP: Ipv4Addr = Ipv4Addr::new(239, 93, 0, 3);
const ADMISSION: Admission = Admission { offset_bytes: 0, word: *b"a secret" };
const PER_USER: usize = 3;

/// A process that has rings.
struct Process {
    connection: Connection,
    readers: Vec<Reader>,
}

impl Process {
    fn open(service: &ServiceAddress) -> Result<Self, OpenError> {
        let (connection, rings) = Connection::open(service, HERE.into())?;
        Ok(Self { connection, readers: map_rings(rings).unwrap() })
    }

    fn enter(&mut self, socket: impl AsFd) -> Result<(), String> {
        let entered = self.connection.enter(socket.as_fd(), ADMISSION, 1);
        entered.map_err(|error| error.to_string())
    }
}

/// Runs a test with a service in a namespace of its own, and gives what was told. Where that is not possible, says why; a CI run must be
/// able to.
#[allow(clippy::print_stdout, reason = "says what was not possible")]
fn with_service(test: impl FnOnce(&ServiceAddress) + Send + 'static) -> Vec<String> {
    with_service_at(&[], test)
}

/// The same with a service of these interfaces.
fn with_service_at(
    interfaces: &'static [&str],
    test: impl FnOnce(&ServiceAddress) + Send + 'static,
) -> Vec<String> {
    let ran = thread::spawn(move || {
        if let Err(reason) = leave_network() {
            let is_ci = std::env::var("CI").is_ok_and(|value| value == "true");
            assert!(!is_ci, "not possible here: {reason}");
            println!("SKIPPED: {reason}");
            return Vec::new();
        }
        let address: ServiceAddress = "@rings".parse().unwrap();
        let interfaces = interfaces.iter().map(|it| (*it).to_owned()).collect();
        let service = Service::bind(ServiceOptions { interfaces, ..options(&address) }).unwrap();
        let told = Mutex::new(Vec::new());
        let tell = |event: Event<'_>| lock(&told).push(format!("{event:?}"));
        service.serve_while(&tell, || test(&address)).unwrap();
        told.into_inner().unwrap()
    });
    ran.join().unwrap()
}

fn options(address: &ServiceAddress) -> ServiceOptions {
    ServiceOptions {
        address: address.clone(),
        hook: Hook::TrafficControl,
        interfaces: Vec::new(),
        per_user_max: PER_USER,
        socket_users: Vec::new(),
    }
}

#[allow(unsafe_code, reason = "a test may leave its network")]
fn leave_network() -> Result<(), String> {
    if !IS_BUILT {
        return Err("no program was built".to_owned());
    }
    // SAFETY: this thread shares nothing else that a network namespace concerns.
    let unshared = unsafe { unshare_unsafe(UnshareFlags::NEWNET) };
    unshared.map_err(|error| format!("no network namespace: {error}"))?;
    let up = Command::new("ip").args(["link", "set", "lo", "up"]).status().unwrap();
    assert!(up.success());
    Ok(())
}

fn wait_until(holds: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < until);
        thread::yield_now();
    }
}

#[test]
fn no_process_sees_what_goes_to_another() {
    with_service(|service| {
        let sockets = [0; 2].map(|port| UdpSocket::bind((HERE, port)).unwrap());
        let mut processes = [(); 2].map(|()| Process::open(service).unwrap());
        for (process, socket) in processes.iter_mut().zip(&sockets) {
            process.enter(socket).unwrap();
        }
        let [mut one, mut other] = processes;
        let sender = UdpSocket::bind((HERE, 0)).unwrap();
        sender.send_to(b"a secret to one", sockets[0].local_addr().unwrap()).unwrap();
        wait_until(|| !one.readers[0].is_empty());
        assert!(one.readers[0].read(|packet| packet.ends_with(b" to one")).unwrap());
        for reader in &mut other.readers {
            assert!(reader.is_empty());
        }
        // Rings that were another's come empty.
        sender.send_to(b"a secret to one", sockets[0].local_addr().unwrap()).unwrap();
        wait_until(|| !one.readers[0].is_empty());
        drop(one);
        let mut next = open_when_free(service);
        assert!(next.readers.iter().all(Reader::is_empty));
        let problem = next.enter(&sockets[1]).unwrap_err();
        assert!(problem.ends_with("is another receiver's"), "{problem}");
        next.enter(&sockets[0]).unwrap();
    });
}

/// As many at once as one user may have; a place is free once its connection has closed.
#[test]
fn one_user_has_so_many_and_places_come_free() {
    let told = with_service(|service| {
        let mut all: Vec<_> = (0..PER_USER).map(|_| Process::open(service).unwrap()).collect();
        let problem = Process::open(service).err().unwrap().to_string();
        let user = rustix::process::getuid().as_raw();
        assert!(problem.contains(&format!("user {user} has {PER_USER} connections")), "{problem}");
        assert!(problem.contains("--per-user"), "{problem}");
        // More often than a program has places for receivers. One stays, so it is the same program.
        all.truncate(1);
        for _ in 0..70 {
            drop(open_when_free(service));
        }
    });
    let count = |kind: &str| told.iter().filter(|event| event.starts_with(kind)).count();
    if !told.is_empty() {
        // On a machine that stands still some ask again.
        assert!(count("Opened") >= PER_USER + 70);
        assert_eq!(count("Closed"), count("Opened"));
        assert!(count("Refused") >= 1);
    }
}

#[test]
fn an_interface_that_the_operator_does_not_name_is_not_served() {
    with_service_at(&["eth7"], |service| {
        let problem = Process::open(service).err().unwrap().to_string();
        assert!(problem.contains("interface lo: the service does not serve it"), "{problem}");
        let nobodys = Connection::open(service, Ipv4Addr::new(192, 0, 2, 1).into());
        let problem = nobodys.err().unwrap().to_string();
        assert!(problem.contains("no network interface has the address"), "{problem}");
    });
}

/// By such a socket one can send any packet.
#[test]
fn sockets_of_af_xdp_are_for_root_and_for_users_whom_the_operator_names() {
    let _ = with_service(|address| {
        let [named, other] = [4242, 4243];
        let users =
            ServiceOptions { socket_users: vec![named], ..options(&"@more".parse().unwrap()) };
        let service = Service::bind(users).unwrap();
        let refused = |user| service.open_sockets(HERE.into(), user).err().map(|it| it.to_string());
        let problem = refused(other).unwrap();
        assert!(problem.starts_with("user 4243 gets no sockets of AF_XDP"), "{problem}");
        assert_eq!([named, 0].map(refused), [None, None]);
        let _ = address;
    });
}

/// The service notices a little later that a connection has closed.
fn open_when_free(service: &ServiceAddress) -> Process {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        match Process::open(service) {
            Ok(process) => return process,
            Err(error) => assert!(Instant::now() < until, "{error}"),
        }
    }
}

#[test]
fn a_socket_that_does_not_show_an_address_is_refused() {
    // Of the network that the test has left.
    let elsewhere = UdpSocket::bind((HERE, 0)).unwrap();
    with_service(move |service| {
        let mut process = Process::open(service).unwrap();
        let mut refuses = |socket: &dyn AsFd, reason: &str| {
            let problem = process.enter(socket).unwrap_err();
            assert!(problem.contains(reason), "{problem}");
        };
        let bound = "bound to an address of the interface";
        refuses(&UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).unwrap(), bound);
        // Loopback takes it, but no interface has it.
        refuses(&UdpSocket::bind((Ipv4Addr::new(127, 0, 0, 2), 0)).unwrap(), bound);
        refuses(&TcpListener::bind((HERE, 0)).unwrap(), "one of UDP");
        refuses(&UdpSocket::bind("[::]:0").unwrap(), bound);
        refuses(&std::fs::File::open("/proc/self/stat").unwrap(), "one of UDP");
        refuses(&elsewhere, "in the network namespace of the service");
        // Multicast is nobody's alone, but one process's in the program.
        let group = UdpSocket::bind((GROUP, 0)).unwrap();
        process.enter(&group).unwrap();
        let mut other = Process::open(service).unwrap();
        let problem = other.enter(&group).unwrap_err();
        assert!(problem.ends_with("is another receiver's"), "{problem}");
        // Loopback has an address of each family.
        other.enter(UdpSocket::bind("[::1]:0").unwrap()).unwrap();
    });
}

#[test]
fn messages_that_are_none_are_refused_and_the_connection_goes_on() {
    with_service(|service| {
        let mut process = Process::open(service).unwrap();
        let socket = UdpSocket::bind((HERE, 0)).unwrap();
        let open = Request::Open { at: HERE.into() }.encode();
        let keep = Request::Keep { target: bound(&socket), rings: 1 }.encode();
        let enter_none = Request::Enter { admission: ADMISSION, rings: 0 }.encode();
        let steer = Request::Steer.encode();
        let mut later = open;
        later[0] += 1;
        let (none, one) = (&[][..], &[socket.as_fd()][..]);
        for (message, beside, reason) in [
            (&open[..], none, "out of place"),
            (&keep, none, "was not entered"),
            (&keep, one, "out of place"),
            (&enter_none, one, "out of place"),
            (&enter_none, &[socket.as_fd(); 2], "out of place"),
            (&steer, one, "out of place"),
            (&open[..7], none, "damaged"),
            (&later, none, "releases"),
            (&[2; 4000], none, "damaged"),
        ] {
            let connection = &process.connection;
            messages::send(connection, message, beside).unwrap();
            let (answer, _) = messages::receive(connection).unwrap().unwrap();
            let reply = Reply::decode(&answer).unwrap();
            let Reply::Refused { reason: problem } = reply else { panic!("{reply:?}") };
            assert!(problem.contains(reason), "{problem}");
        }
        assert!(process.connection.is_open());
        process.enter(&socket).unwrap();
        process.connection.keep(bound(&socket), 2).unwrap();
        process.connection.keep(bound(&socket), 0).unwrap();
        let problem = process.connection.keep(bound(&socket), 0).unwrap_err().to_string();
        assert!(problem.contains("was not entered"), "{problem}");
    });
}

fn bound(socket: &UdpSocket) -> Destination {
    socket.local_addr().unwrap().into()
}

#[test]
fn two_services_do_not_share_an_address_and_what_one_has_left_is_taken_over() {
    let folder = std::env::temp_dir().join(format!("tributary-rings-{}", std::process::id()));
    fs::create_dir(&folder).unwrap();
    let path = folder.join("rings").join("socket");
    let address: ServiceAddress = path.to_str().unwrap().parse().unwrap();
    let first = Service::bind(options(&address)).unwrap();
    let second = Service::bind(options(&address)).err().unwrap();
    assert!(matches!(second, ServiceError::InUse(_)), "{second}");
    // As a service that was killed leaves it.
    fs::hard_link(&path, folder.join("kept")).unwrap();
    drop(first);
    fs::rename(folder.join("kept"), &path).unwrap();
    drop(Service::bind(options(&address)).unwrap());
    assert!(!fs::exists(&path).unwrap());
    let nowhere: ServiceAddress = "/proc/version/socket".parse().unwrap();
    let problem = Service::bind(options(&nowhere)).err().unwrap().to_string();
    assert!(problem.starts_with("can't take connections at /proc/version/socket: "), "{problem}");
    fs::remove_dir_all(folder).unwrap();
}
