//! The command as a child process: signals reach it, and its end is passed on.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::arguments::Arguments;
use crate::fabric::Environment;
use crate::signals;

/// Runs the command to its end.
///
/// Signals that processes send to this one are passed on. Those of the terminal are not: it sends
/// them to the command as well, and a launcher takes a second SIGINT for impatience.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> io::Result<ExitStatus> {
    let (sender, receiver) = std::sync::mpsc::channel();
    signals::forward(&signals::PASSED_ON, move |caught| {
        if !caught.from_terminal {
            // A run that is over needs no news.
            let _ = sender.send(caught.signal);
        }
    })?;
    let mut child = Command::new(&arguments.program)
        .arg0(&arguments.command[0])
        .args(&arguments.command[1..])
        .envs(environment.variables())
        .spawn()?;
    let pid = Pid::from_child(&child);
    // A descriptor, because the number may be another process's by the time a signal comes.
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

/// What this process's exit code is when the command ended with `status`: the same, or as shells
/// have it, 128 and the signal's number.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
