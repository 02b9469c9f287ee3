//! Managers that stop and restart, and false messages to managers.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tributary_daemon::manager::{Manager, ManagerOptions, Tenant};
use tributary_daemon::node::{KernelOptions, Node, NodeLimits, NodeOptions};
use tributary_daemon::shutdown::Shutdown;
use tributary_daemon::tokens::Tokens;
use tributary_manager::ManagerConfig;
use tributary_topology::Fabric;
use tributary_transport::token::Token;
use tributary_wire::control::{JobPlace, Refusal, RefusalCode, Status};
use tributary_wire::frame::AbortReason;

use crate::common::*;

/// A manager in a thread of its own, which can be stopped and started again at its address.
pub(crate) struct RunningManager {
    pub(crate) address: SocketAddr,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl RunningManager {
    pub(crate) fn start(address: SocketAddr, token: &Token) -> Self {
        Self::with_tenants(address, token, Vec::new())
    }

    pub(crate) fn with_tenants(address: SocketAddr, token: &Token, tenants: Vec<Tenant>) -> Self {
        Self::with_tokens(address, token.clone().into(), tenants)
    }

    pub(crate) fn with_tokens(address: SocketAddr, tokens: Tokens, tenants: Vec<Tenant>) -> Self {
        Self::run(address, tokens, tenants, None)
    }

    /// One that serves measurements, or none.
    pub(crate) fn serving(token: &Token, tuning: Option<&str>) -> Self {
        let address = (Ipv4Addr::LOCALHOST, 0).into();
        Self::run(address, token.clone().into(), Vec::new(), tuning.map(str::to_owned))
    }

    fn run(
        address: SocketAddr,
        tokens: Tokens,
        tenants: Vec<Tenant>,
        tuning: Option<String>,
    ) -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let mut listener = None;
        // The address was just left by the manager before.
        eventually("the address is free", || {
            listener = runtime.block_on(tokio::net::TcpListener::bind(address)).ok();
            listener.is_some()
        });
        let listener = listener.unwrap();
        let address = listener.local_addr().unwrap();
        let options = ManagerOptions {
            tokens,
            tenants,
            fabric: Fabric::new(),
            config: ManagerConfig::default(),
            late_after: None,
            tuning,
        };
        let shutdown = Shutdown::new();
        let manager = Manager::new(options, shutdown.clone()).unwrap();
        let thread = thread::spawn(move || runtime.block_on(manager.serve(listener)));
        Self { address, shutdown, thread: Some(thread) }
    }

    pub(crate) fn stop(mut self) -> SocketAddr {
        self.shutdown.request();
        self.thread.take().unwrap().join().unwrap();
        self.address
    }
}

pub(crate) fn start_node(
    name: &str,
    manager: SocketAddr,
    token: &Token,
    folder: &Path,
) -> (Shutdown, JoinHandle<()>) {
    start_node_with(NodeLimits::default(), name, manager, token, folder)
}

pub(crate) fn start_node_with(
    limits: NodeLimits,
    name: &str,
    manager: SocketAddr,
    token: &Token,
    folder: &Path,
) -> (Shutdown, JoinHandle<()>) {
    let node = Node::bind(NodeOptions {
        name: name.into(),
        manager: manager.to_string(),
        tokens: token.clone().into(),
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        advertise: None,
        shm_socket: Some(folder.join(format!("{name}.sock"))),
        metrics: None,
        limits,
        datagram_payload_max_bytes: 1388,
        spin: Duration::ZERO,
        kernel: KernelOptions::Off,
    })
    .unwrap();
    let shutdown = Shutdown::new();
    let asked = shutdown.clone();
    (shutdown, thread::spawn(move || node.run(&asked).unwrap()))
}

fn status_at(manager: SocketAddr, token: &Token) -> Status {
    call(manager, Some(token.reveal()), "GET", "/v1/status", "").json()
}

pub(crate) fn nodes(manager: SocketAddr, token: &Token) -> usize {
    status_at(manager, token).nodes.len()
}

#[test]
fn groups_go_on_without_a_manager_and_are_known_to_the_next() {
    guarded(|| {
        let folder = tempfile::tempdir().unwrap();
        let token = Token::create(&folder.path().join("token")).unwrap();
        let manager = RunningManager::start((Ipv4Addr::LOCALHOST, 0).into(), &token);
        let address = manager.address;
        let running = ["one", "two"].map(|name| start_node(name, address, &token, folder.path()));
        eventually("both nodes are there", || nodes(address, &token) == 2);
        let job = Job::admit_at(address, token.reveal());
        let hosts = ["a".to_owned(), "b".to_owned()];
        let grant = job.group(&hosts, 2, 1024);
        let mut orphans = members(&grant, Way::Tcp);
        sum_once(&mut orphans, 1.0);
        let groups = status_at(address, &token).groups;

        manager.stop();
        sum_once(&mut orphans, 2.0);

        let manager = RunningManager::start(address, &token);
        eventually("both nodes are back", || nodes(address, &token) == 2);
        assert_eq!(status_at(address, &token).groups, groups);
        sum_once(&mut orphans, 3.0);
        let place = JobPlace { job: job.admission.job, secret: job.admission.secret };
        drop(job);
        let next = Job::admit_at(address, token.reveal());
        let granted = next.group(&hosts, 2, 1024);
        assert_ne!((granted.group, granted.epoch), (grant.group, grant.epoch));
        sum_once(&mut members(&granted, Way::Shm), 4.0);
        drop(next);

        // The job comes back to its place. It may have more, and when it ends, all of it goes.
        let resumed = Job::resume_at(address, token.reveal(), place);
        assert_eq!(resumed.admission.job, place.job);
        let mut more = members(&resumed.group(&hosts, 2, 1024), Way::Tcp);
        sum_once(&mut more, 5.0);
        sum_once(&mut orphans, 6.0);
        drop(resumed);
        for member in orphans.iter_mut().chain(&mut more) {
            match member.result() {
                Err(End::Aborted(abort)) => assert_eq!(abort.reason, AbortReason::Withdrawn),
                other => panic!("{other:?}"),
            }
        }
        eventually("nothing is left of it", || {
            let Status { nodes, jobs, groups, .. } = status_at(address, &token);
            jobs.is_empty() && groups.is_empty() && nodes.iter().all(|node| node.osos_used == 0)
        });

        for (shutdown, thread) in running {
            shutdown.request();
            thread.join().unwrap();
        }
        eventually("both nodes have left", || nodes(address, &token) == 0);
        manager.stop();
    });
}

#[test]
fn a_node_waits_for_a_manager_and_stops_while_it_waits() {
    guarded(|| {
        let folder = tempfile::tempdir().unwrap();
        let token = Token::create(&folder.path().join("token")).unwrap();
        let nobody = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = nobody.local_addr().unwrap();
        drop(nobody);
        let (shutdown, thread) = start_node("early", address, &token, folder.path());
        thread::sleep(Duration::from_millis(300));
        let manager = RunningManager::start(address, &token);
        eventually("the node is there", || nodes(address, &token) == 1);
        manager.stop();
        shutdown.request();
        thread.join().unwrap();
    });
}

#[test]
fn impostors_and_liars_are_refused() {
    guarded(|| {
        let fabric = fabric(2, 0);
        let token = token(fabric.token_file());
        let post = |path: &str, body: &str| {
            let answer = call(fabric.manager(), Some(&token), "POST", path, body);
            (answer.status, answer.json::<Refusal>().code)
        };
        let twin = r#"{"name":"root","address":{"tcp":"127.0.0.1:1","machine":"m"},
            "radix":4,"osos":4,"payload_max_bytes":4096}"#;
        assert_eq!(post("/v1/nodes", twin), (409, RefusalCode::NameTaken));
        assert_eq!(post("/v1/nodes/99/events", "[\"tick\"]"), (404, RefusalCode::NotFound));
        assert_eq!(post("/v1/nodes/x/events", "[\"tick\"]").1, RefusalCode::BadRequest);
        assert_eq!(post("/v1/nowhere", ""), (404, RefusalCode::NotFound));
        let job = Job::admit(&fabric);
        let stolen = format!(
            r#"{{"secret":"{}","label":"x","hosts":["a"],"osos":1,"payload_max_bytes":64}}"#,
            "0".repeat(32)
        );
        let path = format!("/v1/jobs/{}/groups", job.admission.job);
        assert_eq!(post(&path, &stolen), (403, RefusalCode::Forbidden));
        assert_eq!(post("/v1/jobs/99/groups", &stolen).1, RefusalCode::NotFound);
        let long = format!("\"{}\"", "x".repeat(16 << 20));
        let answer = call_with_long_body(fabric.manager(), &token, &long);
        assert!(answer.is_none_or(|status| status == 400), "{answer:?}");
        let group = job.group(&hosts(2), 2, 1024);
        let liar =
            format!(r#"[{{"installed":{{"group":{},"epoch":{}}}}}]"#, group.group, group.epoch);
        assert_eq!(post("/v1/nodes/0/events", &liar).0, 400);
        sum_once(&mut members(&group, Way::Tcp), 1.0);
    });
}
