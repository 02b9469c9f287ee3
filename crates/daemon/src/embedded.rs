//! A whole fabric in this process: a manager and a two-level tree of nodes, on loopback.
//!
//! For `tributary run` and `tributary bench` on one machine, and for tests. The parts are the real
//! ones, on threads instead of machines; they talk over sockets and shared memory as they would
//! elsewhere.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use tributary_protocol::manager::ManagerConfig;
use tributary_topology::two_level;
use tributary_transport::machine;
use tributary_wire::control::Status;

use crate::manager::{Manager, ManagerOptions, ServeError, Watch};
use crate::node::{Node, NodeError, NodeLimits, NodeOptions};
use crate::shutdown::Shutdown;
use crate::token::{CreateTokenError, Token};

/// Leaf nodes under the root.
const LEAVES: u16 = 2;

/// How long the nodes may take to register.
const START_TIMEOUT: Duration = Duration::from_secs(10);

/// How long nodes poll for a frame before they sleep, where the machine has cores for that.
const SPIN_WITH_CORES: Duration = Duration::from_micros(50);

/// A fabric that lives as long as this value.
pub struct Fabric {
    manager: SocketAddr,
    token_file: PathBuf,
    watch: Watch,
    shutdown: Shutdown,
    threads: Vec<JoinHandle<()>>,
    // Last, so that sockets in it are closed before it is removed.
    directory: TempDir,
}

/// Why there is no fabric.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// A directory, listener or thread can't be had.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What the system said.
        source: io::Error,
    },
    /// The token file can't be made.
    #[error(transparent)]
    Token(#[from] CreateTokenError),
    /// The manager can't begin.
    #[error(transparent)]
    Manager(#[from] ServeError),
    /// A node can't begin.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The nodes don't find their manager.
    #[error("{registered} of {nodes} nodes registered within {} s", START_TIMEOUT.as_secs())]
    Slow {
        /// How many did.
        registered: usize,
        /// How many there are.
        nodes: usize,
    },
}

fn system(what: &'static str) -> impl Fn(io::Error) -> StartError {
    move |source| StartError::System { what, source }
}

impl Fabric {
    /// Starts a manager, a root node and two leaf nodes, for this machine acting as `hosts` hosts
    /// (named `MACHINE#0` and so on), and waits until all are there.
    ///
    /// # Errors
    /// If any of them can't start; then none is left.
    pub fn start(hosts: u32) -> Result<Self, StartError> {
        let directory = tempfile::Builder::new()
            .prefix("tributary-")
            .tempdir()
            .map_err(system("temporary directory"))?;
        let token_file = directory.path().join("token");
        let token = Token::create(&token_file)?;
        let listener =
            std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map_err(system("listener"))?;
        let address = listener.local_addr().map_err(system("listener"))?;
        let manager = Manager::new(ManagerOptions {
            token: token.clone(),
            fabric: fabric(hosts),
            config: ManagerConfig::default(),
        })?;
        let mut fabric = Self {
            manager: address,
            token_file,
            watch: manager.watch(),
            shutdown: Shutdown::new(),
            threads: Vec::new(),
            directory,
        };
        fabric.start_manager(manager, listener)?;
        let names = std::iter::once("root".to_owned())
            .chain((0..LEAVES).map(|leaf| format!("leaf{leaf}")));
        for name in names {
            fabric.start_node(name, &token, hosts)?;
        }
        fabric.wait_for_nodes()?;
        Ok(fabric)
    }

    /// Where its manager listens.
    #[must_use]
    pub fn manager_address(&self) -> SocketAddr {
        self.manager
    }

    /// Where its token lies, as long as the fabric does.
    #[must_use]
    pub fn token_file(&self) -> &Path {
        &self.token_file
    }

    /// The fabric now.
    #[must_use]
    pub fn status(&self) -> Status {
        self.watch.status()
    }

    fn start_manager(
        &mut self,
        manager: Manager,
        listener: std::net::TcpListener,
    ) -> Result<(), StartError> {
        listener.set_nonblocking(true).map_err(system("listener"))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(system("runtime"))?;
        let shutdown = self.shutdown.clone();
        self.spawn("manager".to_owned(), move || {
            let served = runtime.block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener)?;
                manager.serve(listener, shutdown).await.map_err(io::Error::other)
            });
            if let Err(error) = served {
                tracing::error!(%error, "embedded manager stopped");
            }
        })
    }

    fn start_node(&mut self, name: String, token: &Token, hosts: u32) -> Result<(), StartError> {
        let node = Node::bind(NodeOptions {
            name: name.clone(),
            manager: self.manager.to_string(),
            token: token.clone(),
            listen: (Ipv4Addr::LOCALHOST, 0).into(),
            advertise: None,
            shm_socket: Some(self.directory.path().join(format!("{name}.sock"))),
            metrics: None,
            limits: NodeLimits::default(),
            spin: spin(hosts),
        })?;
        let shutdown = self.shutdown.clone();
        self.spawn(name, move || {
            if let Err(error) = node.run(&shutdown) {
                tracing::error!(%error, "embedded node stopped");
            }
        })
    }

    fn spawn(
        &mut self,
        name: String,
        body: impl FnOnce() + Send + 'static,
    ) -> Result<(), StartError> {
        let thread = thread::Builder::new().name(name).spawn(body).map_err(system("thread"))?;
        self.threads.push(thread);
        Ok(())
    }

    fn wait_for_nodes(&self) -> Result<(), StartError> {
        let nodes = usize::from(LEAVES) + 1;
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            let registered = self.watch.status().nodes.len();
            if registered == nodes {
                return Ok(());
            }
            if Instant::now() >= deadline {
                return Err(StartError::Slow { registered, nodes });
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for Fabric {
    fn drop(&mut self) {
        self.shutdown.request();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so; there is nothing left to stop.
            let _ = thread.join();
        }
    }
}

fn fabric(hosts: u32) -> tributary_topology::Fabric {
    let machine = machine::name();
    let names: Vec<String> = (0..hosts).map(|host| format!("{machine}#{host}")).collect();
    two_level(LEAVES, &names).expect("a machine's name and number make no two hosts alike")
}

/// Nodes may poll only where that takes no core from the ranks.
fn spin(hosts: u32) -> Duration {
    let cores = thread::available_parallelism().map_or(1, |cores| cores.get());
    let wanted = hosts as usize + usize::from(LEAVES) + 1;
    if cores >= wanted { SPIN_WITH_CORES } else { Duration::ZERO }
}
