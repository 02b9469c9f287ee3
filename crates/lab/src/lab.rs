//! A lab that is up, for callers that run commands in it.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::thread;
use std::time::{Duration, Instant};

use crate::directory::{Directory, LabConfig, LabName};
use crate::launch;
use crate::plan::{MANAGER, Plan, RINGS_SOCKET, Role};
use crate::scheduling::Scheduling;
use crate::session::{ExecError, Request, Session};

/// How long aggregation nodes may take to register. Only a slow machine delays them.
const NODES_WITHIN: Duration = Duration::from_secs(30);

/// Pause between two queries of the manager.
const POLL: Duration = Duration::from_millis(10);

/// Why a lab can't be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No lab has that name.
    #[error("there is no lab {name}; `tributary lab up` makes one")]
    NoSuchLab {
        /// The name.
        name: LabName,
    },
    /// Its processes have ended and its folder remains.
    #[error("lab {name} is not running; `tributary lab down` removes what is left of it")]
    Dead {
        /// The name.
        name: LabName,
    },
    /// Its folder can't be used.
    #[error("the folder of lab {name}")]
    Folder {
        /// The name.
        name: LabName,
        /// Why not.
        source: io::Error,
    },
}

/// Why a lab whose processes run is not complete.
#[derive(Debug, thiserror::Error)]
#[error(
    "{seen} of {expected} aggregation nodes have registered after {} s{log}",
    NODES_WITHIN.as_secs()
)]
pub(crate) struct NotRegistered {
    seen: usize,
    expected: usize,
    /// The last lines of the daemons' logs.
    log: String,
}

/// A lab that is up.
#[derive(Clone, Debug)]
pub struct Lab {
    directory: Directory,
    config: LabConfig,
}

impl Lab {
    /// The lab in a folder, with its configuration.
    pub(crate) fn new(directory: Directory, config: LabConfig) -> Self {
        Self { directory, config }
    }

    /// The lab called `name`.
    ///
    /// # Errors
    /// If it is not up.
    pub fn open(name: &LabName) -> Result<Self, OpenError> {
        let directory = Directory::of(name);
        if !directory.path().is_dir() {
            return Err(OpenError::NoSuchLab { name: name.clone() });
        }
        let folder = |source| OpenError::Folder { name: name.clone(), source };
        match directory.lock() {
            Ok(None) => Self::at(directory).map_err(folder),
            Ok(Some(_)) => Err(OpenError::Dead { name: name.clone() }),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                Err(OpenError::Dead { name: name.clone() })
            }
            Err(error) => Err(folder(error)),
        }
    }

    /// The lab in a folder, which is assumed to be up.
    ///
    /// # Errors
    /// If the folder lacks the lab's description.
    pub fn at(directory: Directory) -> io::Result<Self> {
        let config = directory.read_config()?;
        Ok(Self { directory, config })
    }

    /// Its members and links.
    #[must_use]
    pub fn plan(&self) -> &Plan {
        &self.config.plan
    }

    /// Its configuration.
    #[must_use]
    pub fn config(&self) -> &LabConfig {
        &self.config
    }

    /// How its processes are scheduled relative to each other.
    ///
    /// # Errors
    /// If its folder has no such file.
    pub fn scheduling(&self) -> io::Result<Scheduling> {
        self.directory.read_scheduling()
    }

    /// Its folder.
    #[must_use]
    pub fn directory(&self) -> &Directory {
        &self.directory
    }

    /// Starts a command in a member. Sets host name, temporary folder, manager and token file in
    /// its environment, and in a lab with delay the kind of network.
    ///
    /// # Errors
    /// If the member does not accept the request.
    pub fn start(
        &self,
        member: &str,
        mut request: Request,
        descriptors: [BorrowedFd<'_>; 3],
    ) -> Result<Session, ExecError> {
        request.set("HOSTNAME", member);
        request.set("TMPDIR", self.directory.temporary(member));
        request.set("TRIBUTARY_MANAGER", self.config.plan.manager_address());
        if self.config.rings.is_some() {
            request.set("TRIBUTARY_RINGS", RINGS_SOCKET);
        }
        request.set("TRIBUTARY_TOKEN_FILE", self.directory.token());
        if self.config.plan.links.has_delay() {
            // Hosts of one kernel, but their network takes the time, as a cloud's does.
            request.set_default("TRIBUTARY_NETWORK", "cloud");
        }
        Session::start(&self.directory.socket(member), &request, descriptors)
    }

    /// The environment for launchers; see [`launch::environment`].
    ///
    /// # Errors
    /// If a file of the lab can't be written.
    pub fn launch_environment(
        &self,
        ranks_per_host: u32,
        is_set: impl Fn(&str) -> bool,
    ) -> io::Result<Vec<(&'static str, OsString)>> {
        launch::environment(&self.directory, &self.config, ranks_per_host, is_set)
    }

    /// Waits until the manager knows every aggregation node.
    pub(crate) fn await_nodes(&self) -> Result<(), NotRegistered> {
        let expected = self.config.plan.nodes().count();
        let hangs_at = Instant::now() + NODES_WITHIN;
        loop {
            let seen = self.registered_nodes();
            match seen {
                Some(nodes) if nodes == expected => return Ok(()),
                _ if Instant::now() < hangs_at => thread::sleep(POLL),
                _ => {
                    return Err(NotRegistered {
                        seen: seen.unwrap_or(0),
                        expected,
                        log: self.last_log_lines(),
                    });
                }
            }
        }
    }

    /// Number of aggregators registered at the manager; `None` while it does not answer.
    fn registered_nodes(&self) -> Option<usize> {
        let words: [OsString; 3] =
            [self.config.program.clone().into(), "status".into(), "--json".into()];
        let (mut reader, writer) = io::pipe().ok()?;
        let nothing = File::options().read(true).write(true).open("/dev/null").ok()?;
        let descriptors = [nothing.as_fd(), writer.as_fd(), nothing.as_fd()];
        let session = self.start(MANAGER, Request::here(words.into()), descriptors).ok()?;
        drop(writer);
        let mut text = String::new();
        io::Read::read_to_string(&mut reader, &mut text).ok()?;
        session.wait().ok().filter(|status| status.success())?;
        let status: serde_json::Value = serde_json::from_str(&text).ok()?;
        status.get("nodes")?.as_array().map(Vec::len)
    }

    fn last_log_lines(&self) -> String {
        let last = |member: &str| {
            let text = fs::read_to_string(self.directory.log(member)).unwrap_or_default();
            text.lines().last().map(|line| format!("; {member}: {line}"))
        };
        self.config
            .plan
            .members
            .iter()
            .filter(|member| member.role == Role::Manager || member.has_node())
            .filter_map(|member| last(&member.name))
            .collect()
    }
}
