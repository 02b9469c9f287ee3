//! The aggregation node's daemon.
//!
//! It has two threads. The *data* thread runs the protocol machine over its links (`data`), and
//! sleeps when nothing has happened for a while. The *control* thread holds the session with the
//! manager (`control`) and serves metrics. They exchange only orders and answers (`commands`). The
//! protocol crate interprets the frames of groups.

mod activity;
mod arenas;
mod call;
mod commands;
mod control;
mod counters;
mod data;
mod installed_groups;
mod kernel;
mod lines;
mod links;
mod meters;
mod refusals;
mod scheduling;
mod upward;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use tokio::net::TcpListener;
use tributary_kernel_path::LoadError;
use tributary_protocol::node::{NodeConfig, StreamLimits};
use tributary_transport::udp::{DATAGRAM_PAYLOAD_BYTES_MAX, MulticastReceivers};
use tributary_transport::{
    DatagramSocket, ListenError, OptionsError, ShmListener, ShmOptions, TcpAcceptor, TcpOptions,
    machine,
};
use tributary_wire::TreeId;
use tributary_wire::control::{KernelState, NodeAddress, NodeRegistration};
use tributary_wire::frame::Versions;

use crate::http;
use crate::metrics::Registry;
use crate::shutdown::Shutdown;
use crate::tokens::Tokens;
use activity::Activity;
use commands::Channels;
use control::Control;
use data::{DataLoop, DataOptions, Resources};
use installed_groups::InstalledGroups;
pub use kernel::KernelOptions;
use kernel::{KernelMeters, KernelPath};
use meters::{DataMeters, UnqueuedMeter};

/// How long a connector over shared memory may take to complete its greeting.
const GREETING_WITHIN: Duration = Duration::from_secs(2);

/// Only this user's processes may connect over shared memory.
const SOCKET_MODE: u32 = 0o600;

/// Options of an aggregator.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// Its name in the fabric description; unique among living aggregators.
    pub name: String,
    /// `host:port` of the manager.
    pub manager: String,
    /// The operator's tokens, of which it presents the first to the manager; its metrics are for them and readers'.
    pub tokens: Tokens,
    /// Address for links over TCP; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// `host:port` under which others reach `listen`; required if `listen` is a wildcard address.
    pub advertise: Option<String>,
    /// Socket path for links over shared memory; `None` for TCP only, also to the parent.
    pub shm_socket: Option<PathBuf>,
    /// Address of `GET /metrics`; `None` for no metrics.
    pub metrics: Option<SocketAddr>,
    /// Its limits.
    pub limits: NodeLimits,
    /// Longest segment that it sends by datagram; 0 for no datagrams at all.
    pub datagram_payload_max_bytes: u32,
    /// How long to poll after the last frame before sleeping. Polling costs a whole core.
    pub spin: Duration,
    /// Whether short segments are taken inside the kernel.
    pub kernel: KernelOptions,
}

/// Limits of an aggregator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodeLimits {
    /// The versions of frames that it speaks.
    pub frame_versions: Versions,
    /// Children at most in one group.
    pub radix: u16,
    /// Outstanding operations at most, over all groups.
    pub osos: u32,
    /// Groups at most; also the bound on group ids.
    pub groups: u32,
    /// Longest segment, in bytes.
    pub payload_max_bytes: u32,
    /// Open links at most.
    pub links: u32,
    /// Payload memory of all groups and streams at most, in bytes.
    pub arena_bytes: u64,
    /// Share of that memory for streams: per tree, `radix` x window x chunk, and some for results.
    pub streams: StreamLimits,
    /// How long members of a new group, and any connector, may take to join.
    pub join_within: Duration,
}

impl Default for NodeLimits {
    fn default() -> Self {
        Self {
            frame_versions: Versions::SPOKEN,
            radix: 64,
            osos: 4096,
            groups: 65_536,
            payload_max_bytes: 64 << 10,
            links: 4096,
            arena_bytes: 4 << 30,
            streams: StreamLimits { trees: 4, window_max: 8, chunk_bytes_max: 128 << 10 },
            join_within: Duration::from_secs(10),
        }
    }
}

/// Why an aggregator did not start, or stopped by itself.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NodeError {
    /// Its listener for links could not be made.
    #[error("cannot take links at {place}: {source}")]
    Listen {
        /// Address or path.
        place: String,
        /// Why not.
        source: ListenError,
    },
    /// Its listener for metrics could not be made.
    #[error("cannot serve metrics at {address}: {source}")]
    Metrics {
        /// Where.
        address: SocketAddr,
        /// Why not.
        source: io::Error,
    },
    /// It listens at a wildcard address and has no address to advertise.
    #[error("listening at {listen} needs an address under which others reach it (advertise)")]
    NeedsAdvertise {
        /// Where it listens.
        listen: SocketAddr,
    },
    /// The longest segment is longer than any link carries.
    #[error("payload limit: {0}")]
    Options(#[from] OptionsError),
    /// The kernel path is required, and there is none.
    #[error("no path inside the kernel: {0}")]
    Kernel(Box<LoadError>),
    /// The system refused a resource that every daemon needs.
    #[error("{what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// What it said.
        source: io::Error,
    },
    /// The event loop panicked. That is a bug; its thread has reported it.
    #[error("the event loop panicked")]
    Panicked,
}

fn system(what: &'static str) -> impl Fn(io::Error) -> NodeError {
    move |source| NodeError::System { what, source }
}

/// An aggregator that listens and is not registered yet.
pub struct Node {
    options: NodeOptions,
    address: NodeAddress,
    tcp: TcpAcceptor,
    shm: Option<ShmListener>,
    datagrams: Option<DatagramSocket>,
    metrics: Option<std::net::TcpListener>,
    kernel: Option<KernelPath>,
    kernel_state: KernelState,
}

/// Runs an aggregator until asked to stop.
///
/// # Errors
/// If it can't be started, or its event loop fails.
pub fn run(options: NodeOptions, shutdown: &Shutdown) -> Result<(), NodeError> {
    Node::bind(options)?.run(shutdown)
}

impl Node {
    /// Makes an aggregator's listeners.
    ///
    /// # Errors
    /// If a listener can't be made, or its address can't be advertised.
    pub fn bind(options: NodeOptions) -> Result<Self, NodeError> {
        let payload_max_bytes = options.limits.frame_payload_max_bytes();
        let at = |place: String| move |source| NodeError::Listen { place: place.clone(), source };
        let tcp = TcpAcceptor::bind(options.listen, TcpOptions::new(payload_max_bytes)?)
            .map_err(at(options.listen.to_string()))?;
        let bound = tcp.address().map_err(at(options.listen.to_string()))?;
        let datagrams = match options.datagram_payload_max_bytes {
            0 => None,
            _ => Some(bind_datagrams(bound).map_err(at(format!("{bound} (UDP)")))?),
        };
        let shm_options = ShmOptions::new(payload_max_bytes)?;
        let shm = match &options.shm_socket {
            Some(path) => Some(
                ShmListener::bind(path, SOCKET_MODE, shm_options, GREETING_WITHIN)
                    .map_err(at(path.display().to_string()))?,
            ),
            None => None,
        };
        let metrics = match options.metrics {
            Some(address) => Some(bind_metrics(address)?),
            None => None,
        };
        let address = NodeAddress {
            tcp: choose_advertised_address(&options, bound)?,
            machine: machine::name(),
            shm: options.shm_socket.as_ref().map(|path| path.display().to_string()),
        };
        let (kernel, kernel_state) =
            kernel::open(&options.kernel).map_err(|error| NodeError::Kernel(Box::new(error)))?;
        Ok(Self { options, address, tcp, shm, datagrams, metrics, kernel, kernel_state })
    }

    /// The addresses at which it accepts links.
    #[must_use]
    pub fn address(&self) -> &NodeAddress {
        &self.address
    }

    /// The address at which it serves metrics, if it does.
    #[must_use]
    pub fn metrics_address(&self) -> Option<SocketAddr> {
        self.metrics.as_ref().and_then(|listener| listener.local_addr().ok())
    }

    /// Whether it has a path inside the kernel.
    #[must_use]
    pub fn kernel_state(&self) -> &KernelState {
        &self.kernel_state
    }

    /// Registers at the manager, again after each failure, and serves until asked to stop.
    ///
    /// # Errors
    /// If the event loop fails.
    pub fn run(self, shutdown: &Shutdown) -> Result<(), NodeError> {
        let registration = registration(&self);
        let Self { options, tcp, shm, datagrams, metrics, kernel, .. } = self;
        let kernel_counts = kernel.as_ref().map(KernelPath::counts);
        let registry = Registry::new();
        let unqueued = datagrams.as_ref().map(|socket| Arc::new(socket.drop_counter()));
        let outside = OutsideMeters {
            kernel: KernelMeters::new(&registry, kernel_counts.clone()),
            unqueued: UnqueuedMeter::new(&registry, unqueued.clone()),
        };
        let is_registered = Arc::new(AtomicBool::new(false));
        let activity = Arc::new(Activity::new(kernel_counts, unqueued));
        let (poll, waker) = data::poll_and_waker().map_err(system("epoll"))?;
        let Channels { orders, commands, answers, events, waits } =
            Channels::new(Arc::clone(&waker), options.limits.groups);
        shutdown.on_request({
            let waker = Arc::clone(&waker);
            move || {
                // If the loop is gone, nobody has to be woken.
                let _ = waker.wake();
            }
        });
        let resources = Resources {
            poll,
            waker,
            tcp,
            shm,
            datagrams,
            kernel,
            commands,
            answers,
            meters: DataMeters::new(&registry, Arc::clone(&activity)),
            shutdown: shutdown.clone(),
        };
        let data = DataLoop::new(&data_options(&options), resources).map_err(system("epoll"))?;
        let control = Control {
            registration,
            manager: options.manager,
            token: options.tokens.own().clone(),
            allow_shm: options.shm_socket.is_some(),
            orders,
            events,
            waits,
            installed_groups: InstalledGroups::default(),
            activity,
            is_registered: Arc::clone(&is_registered),
            shutdown: shutdown.clone(),
        };
        let data = thread::Builder::new()
            .name(format!("data-{}", options.name))
            .spawn(move || data.run())
            .map_err(system("thread"))?;
        let metrics = metrics
            .map(|listener| (listener, calls(&registry, outside, options.tokens, is_registered)));
        let controlled = run_control(control, metrics, shutdown);
        // Without a control thread no group can be installed, so the data thread ends too.
        shutdown.request();
        let served = data.join().map_err(|_| NodeError::Panicked)?;
        controlled?;
        served.map_err(system("epoll"))
    }
}

/// Runs the control session and the metrics server until the session ends.
fn run_control(
    control: Control,
    metrics: Option<(std::net::TcpListener, http::Guarded)>,
    shutdown: &Shutdown,
) -> Result<(), NodeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(system("runtime"))?;
    runtime.block_on(async {
        if let Some((listener, calls)) = metrics {
            let listener = TcpListener::from_std(listener).map_err(system("listener"))?;
            let shutdown = shutdown.clone();
            tokio::spawn(async move { http::serve(listener, calls, &shutdown).await });
        }
        control.run().await;
        Ok::<(), NodeError>(())
    })?;
    // A connection attempt to a parent may still be running; nobody needs its result.
    runtime.shutdown_background();
    Ok(())
}

/// Meters of what happens outside of the process.
struct OutsideMeters {
    kernel: KernelMeters,
    unqueued: UnqueuedMeter,
}

/// What an aggregator answers: its metrics, and whether it is well.
fn calls(
    registry: &Registry,
    outside: OutsideMeters,
    tokens: Tokens,
    is_registered: Arc<AtomicBool>,
) -> http::Guarded {
    let (handle, outside) = (registry.handle(), Arc::new(outside));
    let render = axum::routing::get(async move || {
        outside.kernel.publish();
        outside.unqueued.publish();
        handle.render()
    });
    let access = http::access::Access::new(tokens, []);
    // Relaxed: nothing else is read because of it.
    let health = http::health::router(move || match is_registered.load(Ordering::Relaxed) {
        true => Ok(()),
        false => Err("no manager has this aggregation node registered"),
    });
    http::Guarded::new(axum::Router::new().route("/metrics", render), access).openly(health)
}

/// Binds the datagram socket to the address of the links and, if it is free, to the same port
/// number, so that one firewall rule covers both.
fn bind_datagrams(links: SocketAddr) -> Result<DatagramSocket, ListenError> {
    let socket = match DatagramSocket::bind(links) {
        Err(ListenError::InUse) => DatagramSocket::bind(SocketAddr::new(links.ip(), 0))?,
        outcome => outcome?,
    };
    if let IpAddr::V4(ip) = links.ip() {
        // Without multicast, datagrams to one receiver still work.
        if let Err(error) = socket.multicast_from(ip, MulticastReceivers::Site) {
            tracing::warn!("no multicast from {ip}: {error}");
        }
    }
    Ok(socket)
}

fn bind_metrics(address: SocketAddr) -> Result<std::net::TcpListener, NodeError> {
    let failed = |source| NodeError::Metrics { address, source };
    let listener = std::net::TcpListener::bind(address).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    Ok(listener)
}

fn choose_advertised_address(
    options: &NodeOptions,
    bound: SocketAddr,
) -> Result<String, NodeError> {
    match (&options.advertise, bound.ip()) {
        (Some(address), _) => Ok(address.clone()),
        (None, IpAddr::V4(ip)) if ip.is_unspecified() => {
            Err(NodeError::NeedsAdvertise { listen: bound })
        }
        (None, IpAddr::V6(ip)) if ip.is_unspecified() => {
            Err(NodeError::NeedsAdvertise { listen: bound })
        }
        (None, _) => Ok(bound.to_string()),
    }
}

fn registration(node: &Node) -> NodeRegistration {
    let NodeOptions { name, limits, .. } = &node.options;
    NodeRegistration {
        name: name.clone(),
        address: node.address.clone(),
        radix: limits.radix,
        osos: limits.osos,
        payload_max_bytes: limits.payload_max_bytes,
        frame_versions: limits.frame_versions,
        stream: limits.streams_that_fit().capacity(),
        kernel: Some(node.kernel_state.clone()),
    }
}

impl NodeLimits {
    /// Limits of streams, with no more trees than fit into half of the payload memory. So an aggregator
    /// with little memory still serves groups, without streams.
    fn streams_that_fit(&self) -> StreamLimits {
        let per_tree = arenas::arena_bytes(&self.streams.arena(TreeId(0), self.radix)).max(1);
        let trees = u16::try_from(self.arena_bytes / 2 / per_tree).unwrap_or(u16::MAX);
        StreamLimits { trees: trees.min(self.streams.trees), ..self.streams }
    }

    /// Longest payload of any frame: a segment's or a chunk's.
    fn frame_payload_max_bytes(&self) -> u32 {
        let streams = self.streams_that_fit();
        let chunk_bytes = if streams.trees > 0 { streams.chunk_bytes_max } else { 0 };
        self.payload_max_bytes.max(chunk_bytes)
    }
}

fn data_options(options: &NodeOptions) -> DataOptions {
    let limits = &options.limits;
    let join_timeout_ns = u64::try_from(limits.join_within.as_nanos()).unwrap_or(u64::MAX);
    DataOptions {
        machine: NodeConfig {
            frame_versions: limits.frame_versions,
            radix_max: limits.radix,
            osos_max: limits.osos,
            groups_max: limits.groups,
            payload_max_bytes: limits.payload_max_bytes,
            join_timeout_ns,
            streams: limits.streams_that_fit(),
        },
        links_max: limits.links as usize,
        arena_bytes_max: limits.arena_bytes,
        join_within: limits.join_within,
        spin: options.spin,
        datagram_payload_max_bytes: options
            .datagram_payload_max_bytes
            .min(DATAGRAM_PAYLOAD_BYTES_MAX),
    }
}
