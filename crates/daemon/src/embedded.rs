//! A manager and its aggregation nodes as threads of this process, for one machine or for the hosts of one job.
//!
//! Owns their threads and a private folder for their token and sockets. Dropping the value ends
//! both.

use std::fs::Permissions;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tokio::net::TcpListener;
use tributary_manager::ManagerConfig;
use tributary_topology::{Fabric as Graph, FabricError, two_level};
use tributary_transport::udp::WHOLE_PAYLOAD_BYTES;
use tributary_transport::{ListenError, machine};
use tributary_wire::control::Status;

use crate::manager::{Manager, ManagerError, ManagerOptions, Watch};
use crate::node::{KernelOptions, Node, NodeError, NodeLimits, NodeOptions};
use crate::shutdown::Shutdown;
use tributary_transport::token::CreateTokenError;
use tributary_transport::token::Token;

/// Longest path of a socket: an address has 108 bytes, of which the last is 0.
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// Where private folders are made if the path of the one for temporary files is too long.
const SHORT_FOLDERS: [&str; 3] = ["/tmp", "/var/tmp", "/dev/shm"];

const FOLDER_PREFIX: &str = "tributary-";
const FOLDER_RANDOM_CHARS: usize = 6;

/// The name of the aggregator that serves the hosts of a job.
const JOB_NODE: &str = "job";

/// How long it polls after its last frame before it sleeps, as one that is deployed does.
const JOB_NODE_SPIN: Duration = Duration::from_micros(50);

/// How long all aggregators may take to register.
const READY_WITHIN: Duration = Duration::from_secs(10);

const POLL: Duration = Duration::from_millis(2);

/// The composition of an embedded fabric.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FabricOptions {
    /// How many hosts this machine acts as.
    pub hosts: u32,
    /// Aggregation nodes below the root; with none, hosts are children of the root.
    pub leaves: u16,
    /// Whether aggregators take links over shared memory besides TCP.
    pub shared_memory: bool,
    /// How long an aggregator polls after its last frame before it sleeps.
    pub spin: Duration,
    /// Longest segment that aggregators send by datagram; 0 for no datagrams at all.
    pub datagram_payload_max_bytes: u32,
    /// Whether aggregators take short segments inside the kernel.
    pub kernel: KernelOptions,
    /// The limits of each aggregator.
    pub node_limits: NodeLimits,
    /// The manager's limits.
    pub manager_limits: ManagerConfig,
}

impl Default for FabricOptions {
    /// Two hosts under a tree of two levels. Aggregators sleep at once, because they share the cores with
    /// the ranks, which need them more.
    fn default() -> Self {
        Self {
            hosts: 2,
            leaves: 2,
            shared_memory: true,
            spin: Duration::ZERO,
            datagram_payload_max_bytes: WHOLE_PAYLOAD_BYTES,
            kernel: KernelOptions::Off,
            node_limits: NodeLimits::default(),
            manager_limits: ManagerConfig::default(),
        }
    }
}

/// Why an embedded fabric did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// No host, or too many.
    #[error("a fabric has from 1 to {max} hosts, not {hosts}")]
    Hosts {
        /// Asked for.
        hosts: u32,
        /// The limit.
        max: u32,
    },
    /// Host and aggregator names collide.
    #[error(transparent)]
    Fabric(#[from] FabricError),
    /// The private folder can't be made.
    #[error("private folder: {0}")]
    Folder(io::Error),
    /// The token can't be made.
    #[error(transparent)]
    Token(#[from] CreateTokenError),
    /// The manager did not start.
    #[error("manager: {0}")]
    Manager(#[from] ManagerError),
    /// An aggregator did not start.
    #[error("aggregation node {name}: {source}")]
    Node {
        /// Which.
        name: String,
        /// Why not.
        source: NodeError,
    },
    /// None of the ports is free at the address.
    #[error("no port of {ports} is free at {address}")]
    NoPort {
        /// Where others would reach it.
        address: IpAddr,
        /// The first and the last that were tried.
        ports: String,
    },
    /// The system refused a listener, a thread or a runtime.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// Not every aggregator registered in time.
    #[error("{registered} of {expected} aggregation nodes registered within {READY_WITHIN:?}")]
    NotReady {
        /// How many did.
        registered: usize,
        /// How many should have.
        expected: usize,
    },
}

/// Most hosts one machine acts as.
const HOSTS_MAX: u32 = 65_536;

/// Where manager and aggregators listen.
#[derive(Clone, Debug)]
struct Place {
    address: IpAddr,
    /// To be tried in this order; 0 lets the system choose.
    ports: Vec<u16>,
}

/// A running manager with its aggregators. Dropping it stops them and removes its folder.
pub struct Fabric {
    place: Place,
    manager: SocketAddr,
    nodes: Vec<RunningNode>,
    watch: Watch,
    shutdown: Shutdown,
    manager_thread: Option<JoinHandle<()>>,
    token_file: PathBuf,
    // Last, so that the sockets in it are closed before it is removed.
    folder: TempDir,
}

struct RunningNode {
    name: String,
    metrics: Option<SocketAddr>,
    shutdown: Shutdown,
    thread: Option<JoinHandle<()>>,
}

impl Fabric {
    /// Starts the manager and its aggregators on loopback, and returns once all have registered.
    ///
    /// # Errors
    /// If any of them can't be started; nothing is left behind.
    pub fn start(options: &FabricOptions) -> Result<Self, StartError> {
        if options.hosts == 0 || options.hosts > HOSTS_MAX {
            return Err(StartError::Hosts { hosts: options.hosts, max: HOSTS_MAX });
        }
        let graph = two_level(options.leaves, &host_names(options.hosts))?;
        let leaves = (0..options.leaves).map(|leaf| format!("leaf{leaf}"));
        let nodes: Vec<String> = ["root".to_owned()].into_iter().chain(leaves).collect();
        let place = Place { address: Ipv4Addr::LOCALHOST.into(), ports: vec![0] };
        Self::start_at(place, graph, &nodes, options)
    }

    /// Starts a manager and one aggregator that other hosts reach at `address` of this one, and returns once it has registered.
    /// Both take the first port of `ports` that is free; 0 lets the system choose. Nothing is known of the hosts, so the
    /// aggregator is the tree of every group.
    ///
    /// # Errors
    /// If any of them can't be started; nothing is left behind.
    pub fn start_for_job(address: IpAddr, ports: Vec<u16>) -> Result<Self, StartError> {
        let options = FabricOptions { spin: JOB_NODE_SPIN, ..FabricOptions::default() };
        let place = Place { address, ports };
        Self::start_at(place, Graph::new(), &[JOB_NODE.to_owned()], &options)
    }

    fn start_at(
        place: Place,
        graph: Graph,
        nodes: &[String],
        options: &FabricOptions,
    ) -> Result<Self, StartError> {
        let folder =
            private_folder(&std::env::temp_dir(), options.leaves).map_err(StartError::Folder)?;
        let token_file = folder.path().join("token");
        let token = Token::create(&token_file)?;
        let manager = ManagerOptions {
            tokens: token.clone().into(),
            tenants: Vec::new(),
            fabric: graph,
            config: options.manager_limits.clone(),
            late_after: None,
            tuning: None,
        };
        let shutdown = Shutdown::new();
        let manager = Manager::new(manager, shutdown.clone())?;
        let watch = manager.watch();
        let (address, manager_thread) = start_manager(manager, &place)?;
        let mut fabric = Self {
            place,
            manager: address,
            nodes: Vec::new(),
            watch,
            shutdown,
            manager_thread: Some(manager_thread),
            token_file,
            folder,
        };
        for name in nodes {
            fabric.start_node(name, options, &token)?;
        }
        fabric.wait_until_ready()?;
        Ok(fabric)
    }

    /// `ip:port` of the manager, for `TRIBUTARY_MANAGER`.
    #[must_use]
    pub fn manager(&self) -> SocketAddr {
        self.manager
    }

    /// The file with the token, for `TRIBUTARY_TOKEN_FILE`. Removed with this value.
    #[must_use]
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// The address at which an aggregator serves its metrics.
    #[must_use]
    pub fn metrics_address(&self, node: &str) -> Option<SocketAddr> {
        self.nodes.iter().find(|running| running.name == node)?.metrics
    }

    /// The fabric now, as the manager sees it.
    #[must_use]
    pub fn status(&self) -> Status {
        self.watch.status()
    }

    /// Stops one aggregator, as an operator would; false if there is none of that name.
    pub fn stop_node(&mut self, name: &str) -> bool {
        let Some(at) = self.nodes.iter().position(|node| node.name == name) else { return false };
        self.nodes.remove(at).stop();
        true
    }

    fn start_node(
        &mut self,
        name: &str,
        options: &FabricOptions,
        token: &Token,
    ) -> Result<(), StartError> {
        let socket = self.folder.path().join(format!("{name}.sock"));
        let failed = |source| StartError::Node { name: name.to_owned(), source };
        let bind = |listen| {
            Node::bind(NodeOptions {
                name: name.to_owned(),
                manager: self.manager.to_string(),
                tokens: token.clone().into(),
                listen,
                advertise: None,
                shm_socket: options.shared_memory.then(|| socket.clone()),
                metrics: Some((Ipv4Addr::LOCALHOST, 0).into()),
                limits: options.node_limits,
                datagram_payload_max_bytes: options.datagram_payload_max_bytes,
                spin: options.spin,
                kernel: options.kernel.clone(),
            })
        };
        let is_taken = |error: &NodeError| {
            matches!(error, NodeError::Listen { source: ListenError::InUse, .. })
        };
        let node = self.place.find_port(bind, is_taken)?.map_err(failed)?;
        let metrics = node.metrics_address();
        let shutdown = Shutdown::new();
        let thread = spawn(&format!("node-{name}"), {
            let (shutdown, name) = (shutdown.clone(), name.to_owned());
            move || {
                if let Err(error) = node.run(&shutdown) {
                    tracing::error!("aggregation node {name}: {error}");
                }
            }
        })?;
        let name = name.to_owned();
        self.nodes.push(RunningNode { name, metrics, shutdown, thread: Some(thread) });
        Ok(())
    }

    fn wait_until_ready(&self) -> Result<(), StartError> {
        let until = Instant::now() + READY_WITHIN;
        let expected = self.nodes.len();
        loop {
            let registered = self.status().nodes.len();
            if registered == expected {
                return Ok(());
            }
            if Instant::now() > until {
                return Err(StartError::NotReady { registered, expected });
            }
            thread::sleep(POLL);
        }
    }
}

impl Place {
    /// What `bind` makes at the first port that is free; its error, unless that is that a port `is_taken`.
    fn find_port<T, E>(
        &self,
        bind: impl Fn(SocketAddr) -> Result<T, E>,
        is_taken: impl Fn(&E) -> bool,
    ) -> Result<Result<T, E>, StartError> {
        let mut outcomes = self.ports.iter().map(|port| bind((self.address, *port).into()));
        let found = outcomes.find(|outcome| !outcome.as_ref().is_err_and(&is_taken));
        found.ok_or_else(|| {
            let ends = [self.ports.first(), self.ports.last()].map(|port| port.copied());
            let [first, last] = ends.map(Option::unwrap_or_default);
            StartError::NoPort { address: self.address, ports: format!("{first} to {last}") }
        })
    }
}

impl RunningNode {
    fn stop(&mut self) {
        self.shutdown.request();
        join(&mut self.thread);
    }
}

impl Drop for RunningNode {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        let nodes = self.nodes.iter().map(|node| &node.shutdown);
        Shutdown::request_together(nodes.chain([&self.shutdown]));
        self.nodes.clear();
        join(&mut self.manager_thread);
    }
}

/// A folder for the token and the sockets: below `preferred`, or elsewhere if a socket's path would be too long there.
fn private_folder(preferred: &Path, leaves: u16) -> io::Result<TempDir> {
    let longest_name = format!("/leaf{leaves}.sock").len();
    let fits = |base: &&Path| {
        let folder = base.as_os_str().len() + "/".len() + FOLDER_PREFIX.len() + FOLDER_RANDOM_CHARS;
        folder + longest_name <= SOCKET_PATH_BYTES_MAX
    };
    let bases = [preferred].into_iter().chain(SHORT_FOLDERS.map(Path::new));
    let mut outcome = Err(io::Error::other("no folder with a path short enough for sockets"));
    for base in bases.filter(fits) {
        let mode = Permissions::from_mode(0o700);
        outcome = tempfile::Builder::new()
            .prefix(FOLDER_PREFIX)
            .rand_bytes(FOLDER_RANDOM_CHARS)
            .permissions(mode.clone())
            .tempdir_in(base)
            // Whatever the process's mask says.
            .and_then(|folder| std::fs::set_permissions(folder.path(), mode).map(|()| folder));
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// The hosts that this machine acts as, named as the host library names them.
fn host_names(hosts: u32) -> Vec<String> {
    let machine = machine::name();
    if hosts == 1 {
        return vec![machine];
    }
    (0..hosts).map(|index| format!("{machine}#{index}")).collect()
}

fn start_manager(
    manager: Manager,
    place: &Place,
) -> Result<(SocketAddr, JoinHandle<()>), StartError> {
    let is_taken = |error: &io::Error| error.kind() == io::ErrorKind::AddrInUse;
    let listener = place.find_port(std::net::TcpListener::bind, is_taken)?;
    let listener = listener.map_err(system("listener"))?;
    listener.set_nonblocking(true).map_err(system("listener"))?;
    let address = listener.local_addr().map_err(system("listener"))?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("runtime"))?;
    let listener = {
        let _entered = runtime.enter();
        TcpListener::from_std(listener).map_err(system("listener"))?
    };
    let thread = spawn("manager", move || runtime.block_on(manager.serve(listener)))?;
    Ok((address, thread))
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<JoinHandle<()>, StartError> {
    thread::Builder::new().name(name.to_owned()).spawn(work).map_err(system("thread"))
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

fn join(thread: &mut Option<JoinHandle<()>>) {
    // A thread that panicked has reported that itself.
    if let Some(thread) = thread.take() {
        let _ = thread.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sockets_fit_however_long_the_path_of_temporary_files_is() {
        let folder = tempfile::tempdir().unwrap();
        for length in [60, 80, 84, 90, 100, 200] {
            let missing = length - folder.path().as_os_str().len();
            let deep = folder.path().join("x".repeat(missing - 1));
            std::fs::create_dir(&deep).unwrap();
            for leaves in [0, 2, 64] {
                let made = private_folder(&deep, leaves).unwrap();
                let socket = made.path().join(format!("leaf{leaves}.sock"));
                std::os::unix::net::UnixListener::bind(&socket).unwrap();
                let is_below = made.path().starts_with(&deep);
                assert_eq!(is_below, length < 76, "{length}: {}", made.path().display());
                let mode = made.path().metadata().unwrap().permissions().mode();
                assert_eq!(mode & 0o7777, 0o700);
            }
        }
    }
}
