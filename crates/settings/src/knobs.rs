//! Every knob of the host library: one row each, and the only place that reads them.
//!
//! `tributary config` prints this table; [`crate::Settings`] is its typed form.

use std::fmt;

/// One knob.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Knob {
    /// The environment variable.
    pub name: &'static str,
    /// What holds when it is not set; empty if nothing does.
    pub default: &'static str,
    /// What its value counts, or an empty string.
    pub unit: &'static str,
    /// What it may be.
    pub allowed: &'static str,
    /// What it does.
    pub help: &'static str,
}

/// Where a knob's value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The table.
    Default,
    /// The environment.
    Environment,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "default",
            Self::Environment => "environment",
        })
    }
}

/// A knob and its value now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KnobValue {
    /// The knob.
    pub knob: &'static Knob,
    /// Its value; an empty string means not set.
    pub value: String,
    /// Where that came from.
    pub origin: Origin,
}

/// Address of the manager.
pub const MANAGER: Knob = Knob {
    name: "TRIBUTARY_MANAGER",
    default: "",
    unit: "",
    allowed: "HOST:PORT",
    help: "the aggregation manager; without one, hosts are joined by direct links that the job makes itself \
           (TRIBUTARY_FABRIC)",
};
/// What joins the hosts of a job.
pub const FABRIC: Knob = Knob {
    name: "TRIBUTARY_FABRIC",
    default: "auto",
    unit: "",
    allowed: "auto, job, manager, off",
    help: "what joins the hosts of a job: job takes the manager, and where none is named direct links that the \
           job makes itself; auto does so, too, unless rank 0's host has an active RDMA port and an MPI that may \
           use it; manager takes the manager or nothing; off takes nothing, so that communicators of \
           several hosts are left to the underlying MPI",
};
/// Where the bearer token lies.
pub const TOKEN_FILE: Knob = Knob {
    name: "TRIBUTARY_TOKEN_FILE",
    default: "",
    unit: "",
    allowed: "a file only its owner may read (mode 0600)",
    help: "the token that the manager asks for",
};
/// Emulated hosts.
pub const HOSTS: Knob = Knob {
    name: "TRIBUTARY_HOSTS",
    default: "1",
    unit: "hosts",
    allowed: "1 to 1024",
    help: "let the ranks of one machine act as this many hosts, in blocks of ranks",
};
/// Segments in flight.
pub const OSOS: Knob = Knob {
    name: "TRIBUTARY_OSOS",
    default: "8",
    unit: "operations",
    allowed: "1 to 1024",
    help: "outstanding operations to ask for per group: segments in flight at once",
};
/// Segment length.
pub const PAYLOAD_MAX: Knob = Knob {
    name: "TRIBUTARY_PAYLOAD_MAX",
    default: "65536",
    unit: "bytes",
    allowed: "16 to 1048576",
    help: "longest segment to ask for per group",
};
/// Chunk length.
pub const STREAM_CHUNK: Knob = Knob {
    name: "TRIBUTARY_STREAM_CHUNK",
    default: "65536",
    unit: "bytes",
    allowed: "256 to 1048576",
    help: "longest chunk to ask for when a long vector is streamed through the tree",
};
/// Chunks in flight.
pub const STREAM_WINDOW: Knob = Knob {
    name: "TRIBUTARY_STREAM_WINDOW",
    default: "8",
    unit: "chunks",
    allowed: "1 to 256",
    help: "chunks of a stream in flight at once, at most",
};
/// Where streaming begins.
pub const STREAM_MIN: Knob = Knob {
    name: "TRIBUTARY_STREAM_MIN",
    default: "never",
    unit: "bytes",
    allowed: "1 to 18446744073709551615, or never",
    help: "shortest vector that is streamed through the tree under its stream lock",
};
/// Carrier between a leader and its aggregation node.
pub const TRANSPORT: Knob = Knob {
    name: "TRIBUTARY_TRANSPORT",
    default: "auto",
    unit: "",
    allowed: "auto, shm, tcp",
    help: "how a leader reaches its aggregation node; auto takes shared memory on the same machine",
};
/// Carrier between hosts.
pub const BETWEEN_HOSTS: Knob = Knob {
    name: "TRIBUTARY_BETWEEN_HOSTS",
    default: "auto",
    unit: "",
    allowed: "auto, tree, direct, replicated",
    help: "how leaders of different hosts meet: through aggregation nodes (tree), by host algorithms over \
           direct links (direct), or by direct links and, for allreduces up to 1 KiB and barriers, \
           datagrams that every host of a group folds itself (replicated: experimental, for networks \
           that lose nothing); auto takes direct links between two real hosts, and among more \
           what was measured for the length (TRIBUTARY_TUNING), else what the model predicts to be the \
           fastest on the kind of network (TRIBUTARY_NETWORK)",
};
/// The kind of network between hosts.
pub const NETWORK: Knob = Knob {
    name: "TRIBUTARY_NETWORK",
    default: "auto",
    unit: "",
    allowed: "auto, ethernet-10, ethernet-25, ethernet-100, cloud, bridge",
    help: "the kind of network whose prices the model chooses by where nothing was measured; auto \
           takes the speed and the driver of the adapter of rank 0's host, and bridge between hosts of one \
           kernel with a core for each rank",
};
/// What to do without a group.
pub const FALLBACK: Knob = Knob {
    name: "TRIBUTARY_FALLBACK",
    default: "direct",
    unit: "",
    allowed: "direct, mpi",
    help: "what carries operations between hosts where the manager refuses a group: host algorithms \
           over direct links, or the underlying MPI",
};
/// What a job must have.
pub const REQUIRE: Knob = Knob {
    name: "TRIBUTARY_REQUIRE",
    default: "nothing",
    unit: "",
    allowed: "nothing, in_host, between, tree",
    help: "what rank 0's job must have to go on, else it ends with the reason when a communicator is set up: \
           shared memory inside hosts (in_host), that and a path between hosts (between), or a tree between \
           them (tree); with nothing, what can't be had is left to the underlying MPI",
};
/// Which operations avoid links that lose packets.
pub const AVOID_LOSSES: Knob = Knob {
    name: "TRIBUTARY_AVOID_LOSSES",
    default: "exact",
    unit: "",
    allowed: "exact, all, off",
    help: "which operations go through the tree, cut into packets, where direct links lose some: those \
           whose result does not depend on the order in which values are combined (exact), all, or none; \
           with all, sums of floats may differ from run to run",
};
/// How floats are added.
pub const SUMS: Knob = Knob {
    name: "TRIBUTARY_SUMS",
    default: "ordered",
    unit: "",
    allowed: "ordered, exact",
    help: "how reductions and scans add floats: in an order that the path gives, rounding each addition \
           (ordered), or without rounding but once at the end (exact), so that no bit of the result depends on \
           ranks, hosts, paths or failures; on all communicators, as rank 0 has it",
};
/// Host algorithm over direct links.
pub const DIRECT_ALGORITHM: Knob = Knob {
    name: "TRIBUTARY_DIRECT_ALGORITHM",
    default: "auto",
    unit: "",
    allowed: "auto, recursive-doubling, rabenseifner, ring, binomial, linear",
    help: "host algorithm between hosts, where it has a form for the collective",
};
/// Sizes of replicated groups.
pub const GROUPS: Knob = Knob {
    name: "TRIBUTARY_GROUPS",
    default: "auto",
    unit: "members",
    allowed: "auto, or numbers from 2 to 32 with x between them, such as 8 or 4x2",
    help: "members of a replicated group at each level, from the hosts on, in communicators of as many hosts \
           as their product, or of fewer if groups of hosts lack one member at most: 4x2 are groups of 4 hosts, \
           of which 2 meet; auto takes what was measured (TRIBUTARY_TUNING), else what the model predicts",
};
/// Multicast between the members of a replicated group.
pub const MULTICAST: Knob = Knob {
    name: "TRIBUTARY_MULTICAST",
    default: "auto",
    unit: "",
    allowed: "auto, on, off",
    help: "whether hosts of a replicated group send one datagram by multicast, where that comes to all of them, \
           instead of one to each; auto does unless the hosts share a kernel, whose bridges do the copying on \
           the sender's core",
};
/// Reception of the datagrams of replicated groups.
pub const RECEIVE: Knob = Knob {
    name: "TRIBUTARY_RECEIVE",
    default: "auto",
    unit: "",
    allowed: "auto, socket, ring",
    help: "where hosts take the datagrams of replicated groups from. auto: rings in memory that the host's service \
           fills before the host's network stack (TRIBUTARY_RINGS), or sockets where there is none; ring: the same, \
           and the report says where there is none",
};
/// The service of rings.
pub const RINGS: Knob = Knob {
    name: "TRIBUTARY_RINGS",
    default: "/run/tributary/rings.socket",
    unit: "",
    allowed: "a path, or @ and a name",
    help: "where this host's service of rings takes connections (tributary rings)",
};
/// Sockets with leaders of their own.
pub const SOCKETS: Knob = Knob {
    name: "TRIBUTARY_SOCKETS",
    default: "1",
    unit: "sockets",
    allowed: "kernel, or 1 to 64",
    help: "experimental, not yet timed on two sockets: parts of each host with a leader of their own between \
           hosts: kernel takes the sockets that ranks \
           are bound to, a number deals a host's ranks in so many blocks; 1 is a leader a host",
};
/// Leaders per host.
pub const LEADERS: Knob = Knob {
    name: "TRIBUTARY_LEADERS",
    default: "auto",
    unit: "ranks",
    allowed: "auto, or 1 to 16",
    help: "ranks of a host that share an allreduce over direct links, each with its part of the vector; auto takes what was measured (TRIBUTARY_TUNING), else 1",
};
/// Sub-partitions of each leader's share.
pub const SUB_PARTITIONS: Knob = Knob {
    name: "TRIBUTARY_SUB_PARTITIONS",
    default: "auto",
    unit: "parts",
    allowed: "auto, or 1 to 64",
    help: "pieces of each leader's share of an allreduce over direct links: while one is between the hosts, \
           the next is reduced inside them; auto takes what was measured (TRIBUTARY_TUNING), else 1",
};
/// Where collectives are left to the underlying MPI.
pub const OFFLOAD_MAX: Knob = Knob {
    name: "TRIBUTARY_OFFLOAD_MAX",
    default: "auto",
    unit: "bytes",
    allowed: "auto, or a list of NAME:BYTES and NAME:always, where NAME is reduce_scatter, allgather, scan, or one of them with \
              between_ before it",
    help: "longest vector of a reduce-scatter or a scan, and contribution of a rank to an allgather, that is ours, inside a host and \
           between hosts; auto inside a host: 4096 for allgather, else always; between hosts: always where long ones take direct \
           links, 32 KiB in all where the tree carries them whole; bench/node/node.py --further measures up to where ours is faster",
};
/// Measurements to choose by.
pub const TUNING: Knob = Knob {
    name: "TRIBUTARY_TUNING",
    default: "auto",
    unit: "",
    allowed: "auto, off, or a file that tributary tune wrote",
    help: "what was measured on this system: paths, algorithms and leaders are selected by it; auto takes \
           the manager's file, else ~/.config/tributary/tuning.toml, if it was measured on such hosts",
};
/// This host's address.
pub const HOST_ADDRESS: Knob = Knob {
    name: "TRIBUTARY_HOST_ADDRESS",
    default: "",
    unit: "",
    allowed: "an IP address",
    help: "where other hosts reach this one; by default the address that the route to the manager has, and \
           without a manager the one on a network that all hosts of the job are on",
};
/// Which of a host's addresses.
pub const INTERFACE: Knob = Knob {
    name: "TRIBUTARY_INTERFACE",
    default: "",
    unit: "",
    allowed: "an interface's name, a network such as 10.1.0.0/16, ipv4 or ipv6",
    help: "which of this host's addresses other hosts may use for direct links; rank 0's holds where a host has none",
};
/// This host's leaf switch.
pub const LEAF: Knob = Knob {
    name: "TRIBUTARY_LEAF",
    default: "",
    unit: "",
    allowed: "a name",
    help: "the leaf switch of this host: levels divide hosts that name the same one before all hosts; by default that of \
           Slurm's SLURM_TOPOLOGY_ADDR, else the network of this host's address",
};
/// Ports of listeners.
pub const PORTS: Knob = Knob {
    name: "TRIBUTARY_PORTS",
    default: "",
    unit: "",
    allowed: "FIRST-LAST, from 1 to 65535",
    help: "the TCP ports at which ranks listen for other hosts, for a firewall; by default the system chooses; \
           rank 0's holds where a host has none",
};
/// Datagrams beside TCP.
pub const CHANNEL: Knob = Knob {
    name: "TRIBUTARY_CHANNEL",
    default: "auto",
    unit: "",
    allowed: "auto, tcp, udp, xdp",
    help: "what carries data where a leader's link is TCP; auto: UDP for segments that cross the \
           network in one piece, udp: for all that fit a datagram, xdp: as auto, past the host's network stack \
           (AF_XDP, one leader a host, by sockets of the host's service: TRIBUTARY_RINGS); TCP where UDP does not \
           arrive",
};
/// An external receiver of the world's results.
pub const EXTERNAL_RECEIVER: Knob = Knob {
    name: "TRIBUTARY_EXTERNAL_RECEIVER",
    default: "",
    unit: "",
    allowed: "a path",
    help: "where to write how an external receiver (tributary listen) may read the results of reductions in \
           the job's first group, that of MPI_COMM_WORLD; nothing is streamed there",
};
/// Waiting policy.
pub const WAIT: Knob = Knob {
    name: "TRIBUTARY_WAIT",
    default: "auto",
    unit: "",
    allowed: "auto, spin, sleep",
    help: "how ranks wait; auto spins where every rank of the machine has a core",
};
/// Direct access between processes.
pub const CROSS_MEMORY: Knob = Knob {
    name: "TRIBUTARY_CROSS_MEMORY",
    default: "auto",
    unit: "",
    allowed: "auto, off",
    help: "whether long vectors go directly from process to process (process_vm_readv) inside a host; \
           auto: where a probe finds that the kernel allows it, else they are staged in shared memory",
};
/// Bound on communicators.
pub const COMMUNICATORS_MAX: Knob = Knob {
    name: "TRIBUTARY_COMMUNICATORS_MAX",
    default: "512",
    unit: "communicators",
    allowed: "1 to 65536",
    help: "communicators of one process that are served at once; later ones are passed through",
};
/// Set up at creation.
pub const COMMUNICATORS_EAGER: Knob = Knob {
    name: "TRIBUTARY_COMMUNICATORS_EAGER",
    default: "8",
    unit: "communicators",
    allowed: "0 to 65536",
    help: "communicators of one process set up when created; later ones when they have been used \
           (TRIBUTARY_COMMUNICATORS_AFTER)",
};
/// Uses before a later communicator is set up.
pub const COMMUNICATORS_AFTER: Knob = Knob {
    name: "TRIBUTARY_COMMUNICATORS_AFTER",
    default: "16",
    unit: "collectives",
    allowed: "1 to 65536",
    help: "the blocking collective at which a communicator is set up that was not when it was created: \
           a set-up takes milliseconds, and memory of aggregation nodes",
};
/// Where the report goes.
pub const REPORT: Knob = Knob {
    name: "TRIBUTARY_REPORT",
    default: "",
    unit: "",
    allowed: "a path, or - for standard error",
    help: "where to write the report at MPI_Finalize: JSON to a path, text to standard error",
};
/// Whether the report tells times.
pub const TIMES: Knob = Knob {
    name: "TRIBUTARY_TIMES",
    default: "on",
    unit: "",
    allowed: "on, off",
    help: "whether a report that is written also tells how long blocking collectives took, which costs \
           each of them two readings of the clock",
};
/// Whether ranks get the token over the MPI.
pub const HAND_ON_TOKEN: Knob = Knob {
    name: "TRIBUTARY_HAND_ON_TOKEN",
    default: "off",
    unit: "",
    allowed: "on, off",
    help: "whether rank 0 hands its token on, over the MPI, to ranks that can't read its file: for tokens made \
           for one job, for the MPI's network sees them",
};
/// Where a trace goes.
pub const TRACE: Knob = Knob {
    name: "TRIBUTARY_TRACE",
    default: "",
    unit: "",
    allowed: "a path",
    help: "where to write at MPI_Finalize which blocking collectives each rank called, when and for how \
           long, for tributary sim replay and advise; replaces the file, 64 MiB at most up to 16384 ranks",
};
/// Whether the loss of a tree is survived.
pub const FAILOVER: Knob = Knob {
    name: "TRIBUTARY_FAILOVER",
    default: "on",
    unit: "",
    allowed: "on, off",
    help: "whether a communicator outlives its aggregation nodes: leaders keep the last results, and go on \
           over direct links until there is a tree again",
};
/// When a rank that others of its host wait for is named.
pub const LATE_AFTER: Knob = Knob {
    name: "TRIBUTARY_LATE_AFTER",
    default: "never",
    unit: "s",
    allowed: "1 to 86400, or never",
    help: "how long ranks of a host wait for one of them to come to a collective before a line on standard error \
           names it",
};
/// What becomes of failed operations of `libsharp_coll`.
pub const SHARP_FAILURE: Knob = Knob {
    name: "TRIBUTARY_SHARP_FAILURE",
    default: "abort",
    unit: "",
    allowed: "abort, stall",
    help: "what follows a nonblocking operation of libsharp_coll that failed, whose client can't be told: \
           abort ends the process after the client's coll_timeout, stall leaves the operation pending",
};
/// Whether anything is offloaded.
pub const OFFLOAD: Knob = Knob {
    name: "TRIBUTARY_OFFLOAD",
    default: "on",
    unit: "",
    allowed: "on, off",
    help: "off leaves every collective to the underlying MPI, and still counts and times it: for the \
           baseline of tributary report",
};
/// Marks the reports of one `tributary run`.
pub const RUN_ID: Knob = Knob {
    name: "TRIBUTARY_RUN_ID",
    default: "",
    unit: "",
    allowed: "any text",
    help: "jobs with the same id add up in one report; set by tributary run",
};
/// Log filter.
pub const LOG: Knob = Knob {
    name: "TRIBUTARY_LOG",
    default: "warn",
    unit: "",
    allowed: "error, warn, info, debug, trace, or a tracing filter",
    help: "what the daemons and the tributary program log, to standard error",
};
/// Where the preload library is.
pub const LIBRARY_PATH: Knob = Knob {
    name: "TRIBUTARY_LIBRARY_PATH",
    default: "",
    unit: "",
    allowed: "a directory",
    help: "where tributary run looks for the preload library before its own directory",
};

/// All of them, in the order in which they are printed.
pub const KNOBS: &[&Knob] = &[
    &MANAGER,
    &FABRIC,
    &TOKEN_FILE,
    &HAND_ON_TOKEN,
    &HOSTS,
    &OSOS,
    &PAYLOAD_MAX,
    &STREAM_CHUNK,
    &STREAM_WINDOW,
    &STREAM_MIN,
    &TRANSPORT,
    &CHANNEL,
    &BETWEEN_HOSTS,
    &NETWORK,
    &FALLBACK,
    &REQUIRE,
    &AVOID_LOSSES,
    &SUMS,
    &DIRECT_ALGORITHM,
    &GROUPS,
    &MULTICAST,
    &RECEIVE,
    &RINGS,
    &SOCKETS,
    &LEADERS,
    &SUB_PARTITIONS,
    &OFFLOAD_MAX,
    &TUNING,
    &HOST_ADDRESS,
    &INTERFACE,
    &LEAF,
    &PORTS,
    &EXTERNAL_RECEIVER,
    &WAIT,
    &CROSS_MEMORY,
    &COMMUNICATORS_MAX,
    &COMMUNICATORS_EAGER,
    &COMMUNICATORS_AFTER,
    &FAILOVER,
    &LATE_AFTER,
    &SHARP_FAILURE,
    &OFFLOAD,
    &REPORT,
    &TIMES,
    &TRACE,
    &RUN_ID,
    &LOG,
    &LIBRARY_PATH,
];

impl Knob {
    /// The knob's value, as `environment` has it. An empty variable counts as not set.
    pub fn value(&'static self, environment: impl Fn(&str) -> Option<String>) -> KnobValue {
        match environment(self.name).filter(|value| !value.is_empty()) {
            Some(value) => KnobValue { knob: self, value, origin: Origin::Environment },
            None => {
                KnobValue { knob: self, value: self.default.to_owned(), origin: Origin::Default }
            }
        }
    }
}

/// The value of every knob.
pub fn values(environment: impl Fn(&str) -> Option<String>) -> Vec<KnobValue> {
    KNOBS.iter().map(|knob| knob.value(&environment)).collect()
}
