//! The `tributary` program: reads the command line, calls the libraries, and writes output for people and
//! programs. The libraries hold the logic.
//!
//! Start at [`dispatch`]. A subcommand has its flags, as typed, in `flags`, and turns them into
//! checked arguments before it does anything.

mod bench;
mod config;
mod daemons;
mod explain;
mod fabric;
mod flags;
mod inspect;
mod lab;
mod lab_links;
mod launched;
mod listen;
mod logging;
mod manual;
mod model;
mod report;
mod rings;
mod run;
mod signals;
mod sim;
mod sim_advise;
mod sim_bench;
mod sim_calibrate;
mod sim_replay;
mod swarm;
mod texts;
mod tune;
mod usage;
mod version;

use std::io::{self, Write};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};

use flags::{Command, Flags, SimAction};
use usage::{Misuse, UsageError};

/// Exit code for options and files that can't be used; any other failure is 1.
const EXIT_USAGE: u8 = 2;

fn main() -> ExitCode {
    let flags = match Flags::try_parse() {
        Ok(flags) => flags,
        Err(error) => return refuse(&error),
    };
    let outcome = logging::start().map_err(anyhow::Error::from).and_then(|()| dispatch(flags));
    match outcome {
        Ok(code) => code,
        Err(error) if is_closed_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            complain(&format!("{error:#}"));
            if error.is::<UsageError>() || error.is::<Misuse>() {
                ExitCode::from(EXIT_USAGE)
            } else {
                ExitCode::FAILURE
            }
        }
    }
}

fn dispatch(flags: Flags) -> anyhow::Result<ExitCode> {
    match flags.command {
        Command::Run(flags) => run::run(flags),
        Command::Report(flags) => report::report(&flags),
        Command::Bench(flags) => bench::run(flags),
        Command::BenchRank(_) => tributary_bench::run_rank(),
        Command::Manager(flags) => daemons::manager(flags),
        Command::Node(flags) => daemons::node(flags),
        Command::Rings(flags) => rings::serve(flags),
        Command::Open(flags) => inspect::open(&flags),
        Command::Drain(flags) => inspect::drain(&flags),
        Command::Token(flags) => daemons::token(flags),
        Command::Status(flags) => inspect::status(&flags),
        Command::Tree(flags) => inspect::tree(flags),
        Command::Listen(flags) => listen::listen(&flags),
        Command::Sim(flags) => match flags.action {
            SimAction::Figure(flags) => {
                sim::figure(&flags).and_then(|_| sim_calibrate::beside_figures(&flags))
            }
            SimAction::Run(flags) => sim::run(&flags),
            SimAction::Compare(flags) => sim::compare(&flags),
            SimAction::Replay(flags) => sim_replay::run(&flags),
            SimAction::Advise(flags) => sim_advise::run(&flags),
            SimAction::Calibrate(flags) => sim_calibrate::calibrate(&flags),
            SimAction::Sensitivity(flags) => sim_calibrate::sensitivity(&flags),
            SimAction::Bench(flags) => sim_bench::run(&flags),
        },
        Command::Swarm(flags) => swarm::run(&flags),
        Command::Model(flags) => model::model(flags),
        Command::Tune(flags) => tune::tune(flags),
        Command::Config(flags) => config::config(flags),
        Command::Lab(flags) => lab::lab(flags.action),
        Command::LabSupervisor(flags) => lab::supervisor(&flags),
        Command::LabProbe(flags) => lab_links::probe(&flags),
        Command::LabAgent(flags) => lab::agent(flags),
        Command::Completions(flags) => {
            let mut script = Vec::new();
            clap_complete::generate(flags.shell, &mut Flags::command(), "tributary", &mut script);
            io::stdout().lock().write_all(&script)?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Manual(flags) => manual::write(&flags.folder),
    }
}

/// Answers a command line that clap did not take: with help if it asks for help, else with one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match usage::line_of(error) {
        Some(line) => {
            // Ranks of a launcher are rarely started with the words that `run` asks for.
            let words = run::launchers::words_after_run(std::env::args_os());
            let problem = words.and_then(|words| {
                run::launchers::wrong_way_round(|name| std::env::var_os(name), &words)
            });
            complain(&problem.unwrap_or(line));
            ExitCode::from(EXIT_USAGE)
        }
        None => {
            // A closed pipe (`tributary --help | head`) is no failure.
            let _ = error.print();
            ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(EXIT_USAGE))
        }
    }
}

/// Writes an error to standard error.
fn complain(line: &str) {
    // If standard error is closed, the exit code has to suffice.
    let _ = writeln!(io::stderr().lock(), "tributary: {}", texts::printable_lines(line));
}

/// Whether the reader closed the pipe, as in `tributary config | head -1`.
fn is_closed_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe)
}
