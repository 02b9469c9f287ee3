//! Commands in members: a caller requests them over the member's socket, and the member runs them.
//!
//! This works like a remote shell without a network. The caller passes its three standard
//! descriptors, its environment and its folder; signals go one way and the exit status the other.
//! So a command starts in the member's namespaces, and the caller needs no privilege except access
//! to the socket.

mod client;
mod server;

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use serde::{Deserialize, Serialize};

pub use client::{ExecError, Session, Signaller};
pub(crate) use server::Sessions;

/// A command for a member.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// The program, as a path or a name on the request's PATH, and its arguments.
    pub words: Vec<OsString>,
    /// The whole environment; later entries override earlier ones.
    pub environment: Vec<(OsString, OsString)>,
    /// The folder it starts in.
    pub folder: OsString,
}

impl Request {
    /// A command with this process's environment and folder.
    #[must_use]
    pub fn here(words: Vec<OsString>) -> Self {
        let folder = std::env::current_dir().map_or_else(|_| "/".into(), OsString::from);
        Self { words, environment: std::env::vars_os().collect(), folder }
    }

    /// Sets a variable.
    pub fn set(&mut self, name: impl Into<OsString>, value: impl Into<OsString>) {
        self.environment.push((name.into(), value.into()));
    }

    /// Sets a variable unless it is set.
    pub fn set_default(&mut self, name: &str, value: &str) {
        if !self.environment.iter().any(|(set, _)| set == name) {
            self.set(name, value);
        }
    }
}

/// A member's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Answer {
    /// The command did not start.
    Refused {
        /// Why not.
        reason: String,
    },
    /// The command ended, with the status that `wait` gave.
    Ended {
        /// As the kernel encodes it.
        status: i32,
    },
}

impl Answer {
    fn exit_status_of(status: i32) -> ExitStatus {
        ExitStatus::from_raw(status)
    }
}
