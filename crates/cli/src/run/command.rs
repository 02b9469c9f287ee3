//! Runs the command as a child process: passes signals to it, and its exit code on.

use std::io;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

use super::arguments::Arguments;
use crate::fabric::Environment;
use crate::signals;

/// The command while it may get signals: from its start until just before its pid may be another process's.
#[derive(Clone, Default)]
pub(crate) struct Target(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    pid: Option<Pid>,
    /// Signals that came before the command was there.
    early: Vec<Signal>,
    is_over: bool,
}

/// Runs the command to its end.
///
/// Passes on the signals that processes send to this one, but not those of the terminal: it sends them to
/// the command too, and a launcher ends its ranks at once on a second SIGINT. All that may fail comes before the
/// command starts, so that it never goes on without this process.
pub(super) fn run(arguments: &Arguments, environment: &Environment) -> io::Result<ExitStatus> {
    let target = Target::default();
    let passed_to = target.clone();
    signals::forward(&signals::PASSED_ON, move |caught| {
        if let Some(signal) = Signal::from_named_raw(caught.signal)
            && !caught.from_terminal
        {
            passed_to.send(signal);
        }
    })?;
    let mut child = Command::new(&arguments.program)
        .arg0(&arguments.command[0])
        .args(&arguments.command[1..])
        .envs(environment.variables())
        .spawn()?;
    target.begin(Pid::from_child(&child));
    await_end(&child);
    target.end();
    child.wait()
}

/// Waits until the command has ended, and leaves its pid to it.
pub(crate) fn await_end(child: &Child) {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    // Any other error is the wait's for which this one leaves the status.
    while matches!(waitid(WaitId::Pid(Pid::from_child(child)), options), Err(Errno::INTR)) {}
}

impl Target {
    pub(crate) fn begin(&self, pid: Pid) {
        let mut state = self.lock();
        state.pid = Some(pid);
        for signal in std::mem::take(&mut state.early) {
            deliver(pid, signal);
        }
    }

    pub(crate) fn send(&self, signal: Signal) {
        let mut state = self.lock();
        match state.pid {
            // While this lock is held the command is not waited for, so the pid is still its own.
            Some(pid) if !state.is_over => deliver(pid, signal),
            Some(_) => {}
            None => state.early.push(signal),
        }
    }

    pub(crate) fn end(&self) {
        self.lock().is_over = true;
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn deliver(pid: Pid, signal: Signal) {
    // Fails only when the command has ended.
    let _ = kill_process(pid, signal);
}

/// This process's exit code after the command ended with `status`: the command's, or as in shells 128 plus
/// the signal's number.
pub(crate) fn exit_code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code).unwrap_or(u8::MAX)
}
