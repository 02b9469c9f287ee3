//! Runs the command as a child process: passes signals to it, and its exit code on.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::arguments::Arguments;
use crate::fabric::Environment;
use crate::signals;

/// Runs the command to its end.
///
/// Passes on the signals that processes send to this one, but not those of the terminal: it sends them to
/// the command too, and a launcher ends its ranks at once on a second SIGINT.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> io::Result<ExitStatus> {
    let (sender, receiver) = std::sync::mpsc::channel();
    signals::forward(&signals::PASSED_ON, move |caught| {
        if !caught.from_terminal {
            // Fails only if the run is over.
            let _ = sender.send(caught.signal);
        }
    })?;
    let mut child = Command::new(&arguments.program)
        .arg0(&arguments.command[0])
        .args(&arguments.command[1..])
        .envs(environment.variables())
        .spawn()?;
    let pid = Pid::from_child(&child);
    // A descriptor: the pid may be another process's when a signal comes.
    let command = pidfd_open(pid, PidfdFlags::empty())?;
    std::thread::Builder::new().name("pass-on".to_owned()).spawn(move || {
        for signal in receiver {
            if let Some(signal) = Signal::from_named_raw(signal) {
                // Fails only when the command has ended.
                let _ = pidfd_send_signal(&command, signal);
            }
        }
    })?;
    child.wait()
}

/// This process's exit code after the command ended with `status`: the command's, or as in shells 128 plus
/// the signal's number.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
