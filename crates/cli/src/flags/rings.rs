//! `tributary rings`.

use clap::{Args, ValueEnum};
use tributary_af_xdp::ServiceAddress;

use crate::usage::whole_number;

const EXAMPLES: &str = "\
Examples:
  tributary rings
  tributary rings --interface eth1 --hook xdp-native
  tributary rings --socket @tributary-rings --af-xdp 1000

Jobs of this host find the service by themselves; TRIBUTARY_RINGS names another socket to them. A program is \
at an interface while a job has rings there. The service needs CAP_NET_ADMIN and CAP_BPF, and CAP_NET_RAW for \
AF_XDP; jobs need nothing. \
SIGTERM or SIGINT stops it: what its jobs are sent comes by their sockets from then on. SIGHUP is ignored.";

/// Serve this host's jobs with rings: datagrams of replicated groups in their memory, before the network stack
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RingsFlags {
    /// Unix socket to take connections at, of any user: a path, or @ and a name that lies in no folder
    #[arg(
        long, value_name = "SOCKET", env = "TRIBUTARY_RINGS",
        default_value = tributary_client::knobs::RINGS.default
    )]
    pub(crate) socket: ServiceAddress,

    /// Interface to serve, which may be given again for others; without this option, any that a job asks for
    #[arg(long, value_name = "NAME")]
    pub(crate) interface: Vec<String>,

    /// Where the program sits
    #[arg(long, value_name = "HOOK", value_enum, default_value_t = HookFlag::TrafficControl)]
    pub(crate) hook: HookFlag,

    /// Most connections of one user at once: a process has one for each interface, and there 3 MiB of rings
    #[arg(long, value_name = "COUNT", default_value = "32", value_parser = whole_number(1..=64))]
    pub(crate) per_user: u64,

    /// Number of a user whose jobs may have sockets of AF_XDP (TRIBUTARY_CHANNEL=xdp), which may be given again for others. By such a
    /// socket one can send any packet. Root's may without this option
    #[arg(long, value_name = "USER")]
    pub(crate) af_xdp: Vec<u32>,
}

/// Where the program sits.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum HookFlag {
    /// Where packets enter the network stack; Linux 6.6
    TrafficControl,
    /// Behind the driver, by XDP; no other XDP program may be there
    Xdp,
    /// In the network driver, by XDP; some drivers restart the interface
    XdpNative,
}
