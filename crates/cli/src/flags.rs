//! The command line as it is typed: clap's view, one struct for each subcommand. Here values are checked
//! one by one; the module that runs a subcommand checks whether they go together.

mod bench;
mod daemons;
mod inspect;
mod lab;
mod launched;
mod model;
mod report;
mod rings;
mod run;
mod sim;
mod swarm;

pub(crate) use bench::{BenchFlags, BenchRankFlags, CollectiveFlag, OwnFlags, PathFlag};
pub(crate) use daemons::{KernelFlag, ManagerFlags, NodeFlags, TokenAction, TokenFlags};
pub(crate) use inspect::{
    CompletionsFlags, ConfigFlags, DrainFlags, FabricFlags, ListenFlags, ManagerAddressFlags,
    ManualFlags, OpenFlags, StatusFlags,
};
pub(crate) use lab::{
    LabAction, LabAgentFlags, LabCheckFlags, LabExecFlags, LabFlags, LabNodesFlag, LabProbeFlags,
    LabRunFlags, LabStatusFlags, LabSupervisorFlags, LabUpFlags,
};
pub(crate) use launched::{LaunchedFlags, MeasuringFlags};
pub(crate) use model::{ModelFlags, TuneFlags};
pub(crate) use report::ReportFlags;
pub(crate) use rings::{HookFlag, RingsFlags};
pub(crate) use run::{RunFlags, SwitchFlag, TransportFlag};
pub(crate) use sim::{
    AdviseFlags, CalibrateFlags, CalibrationEffort, ClusterFlags, CompareFlags, FigureFlags,
    ReplayFlags, SensitivityFlags, SimAction, SimBenchFlags, SimFlags, SimRunFlags, SystemFlags,
};
pub(crate) use swarm::SwarmFlags;

use clap::{Parser, Subcommand};

use crate::version::VERSION;

const EXAMPLES: &str = "\
Examples:
  tributary run -- mpirun -n 4 ./app            run a program on this machine
  tributary run --hosts 2 -- mpirun -n 4 ./app  the same, acting as two hosts
  tributary bench allreduce --hosts 2           time the tree without any MPI
  tributary bench --peer -- mpirun -n 8         time a cluster beside plain MPI
  tributary config                              show every knob and its origin

The environment variable TRIBUTARY_LOG (error, warn, info, debug, trace, or a filter such as \
tributary_daemon=debug) selects what is logged to standard error.";

/// Aggregation trees for MPI collectives, in software.
#[derive(Debug, Parser)]
#[command(name = "tributary", version, long_version = VERSION.as_str(), after_help = EXAMPLES, max_term_width = 100)]
#[command(disable_help_subcommand = true)]
pub(crate) struct Flags {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(RunFlags),
    Report(ReportFlags),
    Bench(BenchFlags),
    Manager(ManagerFlags),
    Node(NodeFlags),
    Rings(RingsFlags),
    Status(StatusFlags),
    /// Show the fabric's tree, and the groups that jobs hold on it
    #[command(after_help = inspect::TREE_EXAMPLES)]
    Tree(FabricFlags),
    Open(OpenFlags),
    Drain(DrainFlags),
    Listen(ListenFlags),
    Sim(SimFlags),
    Swarm(SwarmFlags),
    Config(ConfigFlags),
    Lab(LabFlags),
    Model(ModelFlags),
    Tune(TuneFlags),
    Token(TokenFlags),
    Completions(CompletionsFlags),
    Manual(ManualFlags),
    #[command(hide = true)]
    BenchRank(BenchRankFlags),
    #[command(hide = true)]
    LabSupervisor(LabSupervisorFlags),
    #[command(hide = true)]
    LabAgent(LabAgentFlags),
    #[command(hide = true)]
    LabProbe(LabProbeFlags),
}
