//! `tributary lab`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum, ValueHint};
use tributary_lab::delay::Delay;
use tributary_lab::directory::LabName;
use tributary_lab::network::{HOSTS_MAX, Loss, Rate};

use crate::usage::whole_number;

const EXAMPLES: &str = "\
Examples:
  tributary lab up --hosts 8
  tributary lab run -- mpirun -n 8 ./app          collectives in the tree
  tributary lab run --plain -- mpirun -n 8 ./app  the plain MPI
  tributary lab exec h3 -- ip address
  tributary lab status
  tributary lab down";

const UP_EXAMPLES: &str = "\
Examples:
  tributary lab up --hosts 8 --hosts-per-leaf 4
  tributary lab up --hosts 8 --hosts-per-leaf 8 --name flat
  tributary lab up --hosts 4 --rate 10gbit --loss 0.5
  tributary lab up --hosts 8 --delay 1ms

Hosts are called h0, h1, ...; switches leaf0, ... and spine; an aggregation node has the name of its \
switch and -an, such as leaf0-an; the manager is called manager.";

const RUN_EXAMPLES: &str = "\
Examples:
  tributary lab run -- mpirun -n 8 ./app
  tributary lab run --ranks-per-host 2 -- mpirun -n 16 ./app
  tributary lab run --plain -- mpirun -n 8 ./app

The command starts on h0. Its environment names a host file and a launch agent, for Open MPI and for \
launchers such as MPICH's. The exit code is the command's own.";

/// Make hosts, switches and aggregation nodes out of this machine's namespaces
///
/// Every host has its own network, name, processes and shared memory. Switches are bridges, with an
/// aggregation node beside each. A lab adds nothing to this machine's own network. When it goes down,
/// or its processes end for any other reason, nothing of it remains.
#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct LabFlags {
    #[command(subcommand)]
    pub(crate) action: LabAction,
}

#[derive(Debug, Subcommand)]
pub(crate) enum LabAction {
    Up(LabUpFlags),
    /// End a lab and remove everything of it, also after a crash
    #[command(after_help = "\
Examples:
  tributary lab down
  tributary lab down --name flat")]
    Down(LabNameFlags),
    Exec(LabExecFlags),
    Run(LabRunFlags),
    Status(LabStatusFlags),
    Check(LabCheckFlags),
}

/// Which lab.
#[derive(Debug, Args)]
pub(crate) struct LabNameFlags {
    /// The lab's name; labs with different names are isolated from each other
    #[arg(long, value_name = "NAME", default_value = "lab", env = "TRIBUTARY_LAB")]
    pub(crate) name: LabName,
}

/// Make a lab
#[derive(Debug, Args)]
#[command(after_help = UP_EXAMPLES)]
pub(crate) struct LabUpFlags {
    #[command(flatten)]
    pub(crate) lab: LabNameFlags,

    /// Number of hosts
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole_number(1..=u64::from(HOSTS_MAX)))]
    pub(crate) hosts: u64,

    /// Hosts on each leaf switch; if there are several leaves, a spine connects them
    #[arg(long, value_name = "N", default_value = "4", value_parser = whole_number(1..=u64::from(HOSTS_MAX)))]
    pub(crate) hosts_per_leaf: u64,

    /// Cores of its own for every host; manager and aggregators share the rest, and at least one. All members share all
    /// cores unless given
    #[arg(long, value_name = "N", value_parser = whole_number(1..=4096))]
    pub(crate) cores_per_host: Option<u64>,

    /// Where the aggregation nodes are
    #[arg(long, value_enum, value_name = "WHERE", default_value = "all")]
    pub(crate) nodes: LabNodesFlag,

    /// Microseconds that aggregation nodes poll before they sleep
    #[arg(long, value_name = "MICROSECONDS", default_value = "50", value_parser = whole_number(0..=1_000_000))]
    pub(crate) node_spin: u64,

    /// Let aggregation nodes take short segments inside the kernel
    #[arg(long)]
    pub(crate) node_kernel: bool,

    /// Start a service of rings on every host, whose programs sit there
    #[arg(long, value_name = "HOOK", value_enum)]
    pub(crate) rings: Option<super::HookFlag>,

    /// Rate of every link in each direction, such as 10gbit; unlimited unless given
    #[arg(long, value_name = "RATE")]
    pub(crate) rate: Option<Rate>,

    /// How long a frame takes from one member to another, such as 1ms; a switch in user space then carries all frames
    #[arg(long, value_name = "TIME")]
    pub(crate) delay: Option<Delay>,

    /// How much longer a frame takes across the spine
    #[arg(long, value_name = "TIME", default_value = "0ns", requires = "delay")]
    pub(crate) spine_delay: Delay,

    /// How much longer a frame takes at most, at random; the order between two members stays
    #[arg(long, value_name = "TIME", default_value = "0ns", requires = "delay")]
    pub(crate) jitter: Delay,

    /// Percentage of packets that every link loses in each direction, such as 0.5; with --delay, that every receiver loses
    #[arg(long, value_name = "PERCENT", default_value = "0")]
    pub(crate) loss: Loss,

    /// Send single packets, as on a wire; else the kernel keeps up to 64 KiB together, and they are lost
    /// together
    #[arg(long)]
    pub(crate) single_packets: bool,

    /// TCP's least retransmission timeout, in milliseconds; the kernel's 200 unless given
    #[arg(long, value_name = "MILLISECONDS", value_parser = whole_number(1..=10_000))]
    pub(crate) tcp_rto_min: Option<u64>,

    /// Give groups no multicast addresses for their results
    #[arg(long)]
    pub(crate) no_multicast: bool,

    /// Drop multicast on every link, as a network without multicast does
    #[arg(long)]
    pub(crate) block_multicast: bool,

    /// Authenticate every frame between members with a code that only its group can make
    #[arg(long)]
    pub(crate) authenticate_frames: bool,
}

/// Where the aggregation nodes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum LabNodesFlag {
    /// Beside every switch, on a link of their own
    All,
    /// Beside the topmost switch alone
    Spine,
    /// In every switch, at its ports
    Inside,
}

/// Run a command on a member of a lab
///
/// The command has the member's network, name, processes and shared memory, and this machine's
/// files. The exit code is the command's own.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tributary lab exec h3 -- ip address
  tributary lab exec manager -- tributary status")]
pub(crate) struct LabExecFlags {
    #[command(flatten)]
    pub(crate) lab: LabNameFlags,

    /// The member: a host, a switch, an aggregation node, or the manager
    #[arg(value_name = "HOST")]
    pub(crate) host: String,

    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Run an MPI launcher so that it starts its ranks on the lab's hosts, through the lab's tree
#[derive(Debug, Args)]
#[command(after_help = RUN_EXAMPLES)]
pub(crate) struct LabRunFlags {
    #[command(flatten)]
    pub(crate) lab: LabNameFlags,

    /// Ranks that the launcher may put on each host
    #[arg(long, value_name = "N", default_value = "1", value_parser = whole_number(1..=1024))]
    pub(crate) ranks_per_host: u64,

    /// Leave the preload library out: the plain MPI
    #[arg(long, conflicts_with = "report")]
    pub(crate) plain: bool,

    /// Also write the report as JSON to PATH
    #[arg(long, value_name = "PATH", value_hint = ValueHint::FilePath)]
    pub(crate) report: Option<OsString>,

    /// The launcher and its arguments
    #[arg(last = true, required = true, value_name = "COMMAND", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// List labs, or show the members of one
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tributary lab status
  tributary lab status --name lab --json")]
pub(crate) struct LabStatusFlags {
    /// The lab to show; without it, all labs are listed
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<LabName>,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Check times, losses and order of frames in a lab with delay
///
/// The first host sends frames to each other host, then as many to all of them by multicast. Fails if a frame comes too
/// early or out of order, or if a receiver's loss is not the one asked for. Frames that come late are shown: busy
/// processors delay them.
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  tributary lab up --hosts 4 --delay 1ms
  tributary lab check --frames 1000")]
pub(crate) struct LabCheckFlags {
    #[command(flatten)]
    pub(crate) lab: LabNameFlags,

    /// Frames that each receiver is sent
    #[arg(long, value_name = "N", default_value = "10000", value_parser = whole_number(1..=1_000_000))]
    pub(crate) frames: u64,

    /// Write JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// A process that sends or receives frames for `lab check`.
#[derive(Debug, Args)]
pub(crate) struct LabProbeFlags {
    /// What to do, as JSON.
    pub(crate) probe: String,
}

/// The supervisor of a lab, which `lab up` starts.
#[derive(Debug, Args)]
pub(crate) struct LabSupervisorFlags {
    pub(crate) directory: PathBuf,
}

/// The launch agent that launchers call instead of `ssh`.
#[derive(Debug, Args)]
pub(crate) struct LabAgentFlags {
    pub(crate) directory: PathBuf,

    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    pub(crate) arguments: Vec<OsString>,
}
