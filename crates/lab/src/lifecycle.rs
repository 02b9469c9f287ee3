//! Brings labs up and takes them down.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use crate::channel::{self, Receiver};
use crate::directory::{Directory, LabConfig, LabName, Lock};
use crate::lab::Lab;
use crate::launch;
use crate::messages::{Failure, Go};
use crate::scheduling::Scheduling;
use crate::switch;
use crate::tools::{self, ToolError};

/// How long killed processes may take to end.
const END_WITHIN: Duration = Duration::from_secs(20);

const POLL: Duration = Duration::from_millis(10);

/// The lab to bring up.
#[derive(Clone, Debug)]
pub struct UpOptions {
    /// Its name; unique among this user's labs.
    pub name: LabName,
    /// Its configuration.
    pub config: LabConfig,
}

/// Why a lab did not come up. Nothing of it remains.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpError {
    /// A lab of that name exists.
    #[error("lab {name} is up already; `tributary lab down` ends it, or choose another --name")]
    Exists {
        /// Its name.
        name: LabName,
    },
    /// The system does not permit this user to make namespaces.
    #[error(
        "this machine does not let this user have network namespaces ({reason}); run as root, or \
         allow unprivileged user namespaces"
    )]
    NotPermitted {
        /// The step that was refused.
        reason: String,
    },
    /// A lab with delay carries frames by TAP devices, which this user can't have.
    #[error(
        "a lab with delay needs /dev/net/tun ({source}); run as a user who may open it, such as root"
    )]
    NoDevices {
        /// Why not.
        source: io::Error,
    },
    /// A tool is missing.
    #[error(transparent)]
    Tool(#[from] ToolError),
    /// Something else was refused.
    #[error("the lab did not come up: {0}")]
    Failed(String),
    /// A file of the lab could not be made.
    #[error("{what}")]
    File {
        /// Which.
        what: &'static str,
        /// Why not.
        source: io::Error,
    },
}

/// Why a lab was not taken down.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownError {
    /// No lab has that name.
    #[error("there is no lab {name}")]
    NoSuchLab {
        /// The name.
        name: LabName,
    },
    /// Its processes did not end.
    #[error("lab {name} still runs {} s after its supervisor was killed", END_WITHIN.as_secs())]
    StillRunning {
        /// The name.
        name: LabName,
    },
    /// The system refused.
    #[error("ending lab {name}")]
    System {
        /// The name.
        name: LabName,
        /// Why.
        source: io::Error,
    },
}

/// Brings a lab up, with its manager and all aggregation nodes registered.
///
/// # Errors
/// If it can't; then nothing of it remains.
pub fn up(options: &UpOptions) -> Result<Lab, UpError> {
    let links = &options.config.plan.links;
    tools::check(links)?;
    if links.has_delay() {
        switch::check().map_err(|source| UpError::NoDevices { source })?;
    }
    let directory = Directory::of(&options.name);
    let lock = directory
        .create_and_lock()
        .map_err(file("the lab's folder"))?
        .ok_or_else(|| UpError::Exists { name: options.name.clone() })?;
    let outcome = fill(&directory, &options.config, &lock)
        .and_then(|()| start_supervisor(&directory, &options.config, &lock));
    if outcome.is_err() {
        // The supervisor ends because its socket to this process is closed. It may be removing the
        // folder itself; if not, a later `down` does.
        drop(lock);
        let _ = down(&options.name);
    }
    outcome
}

/// Writes the files that members and launchers read.
fn fill(directory: &Directory, config: &LabConfig, lock: &Lock) -> Result<(), UpError> {
    // The lock was free, so the lab that left these files has ended.
    directory.empty().map_err(file("what an earlier lab left behind"))?;
    directory.write_process(std::process::id() as i32).map_err(file("pid file"))?;
    for folder in ["sockets", "log", "tmp"] {
        let made = DirBuilder::new().mode(0o700).create(directory.path().join(folder));
        made.map_err(file("a folder of the lab"))?;
    }
    fs::write(directory.topology(), config.plan.topology()).map_err(file("topology.toml"))?;
    fs::write(directory.hosts_file(), config.plan.hosts_file()).map_err(file("hosts"))?;
    launch::write_agent(directory, config).map_err(file("launch-agent"))?;
    directory.write_config(config).map_err(file("lab.json"))?;
    make_control_group(directory, config)?;
    make_token(directory, config, lock)
}

fn make_control_group(directory: &Directory, config: &LabConfig) -> Result<(), UpError> {
    let name = directory.path().file_name().unwrap_or_default().to_string_lossy();
    let planned = Scheduling::plan(&name);
    let note = |scheduling: &Scheduling| {
        directory.write_scheduling(scheduling).map_err(file("scheduling.json"))
    };
    // Noted before it is made, so that `down` removes it even after a crash in between.
    note(&planned)?;
    let made = planned.make();
    note(&made)?;
    if config.plan.links.has_delay() {
        made.go_first().map_err(file("the share of the lab's control group"))?;
    }
    Ok(())
}

fn make_token(directory: &Directory, config: &LabConfig, lock: &Lock) -> Result<(), UpError> {
    // The program holds the lock too: it may outlive this process, and must not write into a folder
    // that is being removed.
    let lock = lock.0.try_clone().map_err(file("the lab's lock"))?;
    let output = Command::new(&config.program)
        .args(["token", "create"])
        .arg(directory.token())
        .stdin(Stdio::from(lock))
        .output()
        .map_err(file("the tributary program"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(UpError::Failed(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
}

fn start_supervisor(
    directory: &Directory,
    config: &LabConfig,
    lock: &Lock,
) -> Result<Lab, UpError> {
    let (control, far) = UnixStream::pair().map_err(file("socket pair"))?;
    let log = File::create(directory.log("supervisor")).map_err(file("the supervisor's log"))?;
    let lock = lock.0.try_clone().map_err(file("the lab's lock"))?;
    let mut starter = Command::new(&config.program)
        .arg("lab-supervisor")
        .arg(directory.path())
        .stdin(Stdio::from(lock))
        .stdout(Stdio::from(OwnedFd::from(far)))
        .stderr(log)
        .spawn()
        .map_err(file("the tributary program"))?;
    let report = Receiver::new(&control).receive::<Result<(), Failure>>();
    // The starter ends once it has made the supervisor, or failed to.
    let _ = starter.wait();
    match report {
        Ok(Some(Ok(()))) => {}
        Ok(Some(Err(failure))) if failure.is_refusal => {
            return Err(UpError::NotPermitted { reason: failure.text });
        }
        Ok(Some(Err(failure))) => return Err(UpError::Failed(failure.text)),
        Ok(None) | Err(_) => {
            let said = fs::read_to_string(directory.log("supervisor")).unwrap_or_default();
            return Err(UpError::Failed(format!("its supervisor ended: {}", said.trim())));
        }
    }
    let lab = Lab::new(directory.clone(), config.clone());
    lab.await_nodes().map_err(|error| UpError::Failed(error.to_string()))?;
    channel::send(&control, &Go).map_err(file("message to the supervisor"))?;
    Ok(lab)
}

fn file(what: &'static str) -> impl Fn(io::Error) -> UpError {
    move |source| UpError::File { what, source }
}

/// Ends a lab, whatever state it is in, and removes everything of it.
///
/// # Errors
/// If there is none, or it can't be ended.
pub fn down(name: &LabName) -> Result<(), DownError> {
    let directory = Directory::of(name);
    let system = |source| DownError::System { name: name.clone(), source };
    let hangs_at = Instant::now() + END_WITHIN;
    if !directory.path().is_dir() {
        return Err(DownError::NoSuchLab { name: name.clone() });
    }
    loop {
        match directory.create_and_lock().map_err(system)? {
            Some(lock) => return directory.remove(&lock).map_err(system),
            None if Instant::now() >= hangs_at => {
                return Err(DownError::StillRunning { name: name.clone() });
            }
            None => end(&directory).map_err(system)?,
        }
    }
}

/// Kills a lab's supervisor if there is one, and waits for its end.
fn end(directory: &Directory) -> io::Result<()> {
    let descriptor = directory
        .read_process()
        .and_then(Pid::from_raw)
        // If `up` failed, the file may still name the process that is running this.
        .filter(|process| *process != rustix::process::getpid())
        .and_then(|process| pidfd_open(process, PidfdFlags::empty()).ok());
    let Some(descriptor) = descriptor else {
        // The lab is about to note another process, or to end.
        thread::sleep(POLL);
        return Ok(());
    };
    // The lock is still held, so the process belongs to the lab and its number was not reused.
    if directory.create_and_lock()?.is_some() {
        return Ok(());
    }
    match pidfd_send_signal(&descriptor, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => return Err(error.into()),
    }
    // The supervisor is gone only after all members are.
    let limit = Timespec { tv_sec: END_WITHIN.as_secs() as i64, tv_nsec: 0 };
    poll(&mut [PollFd::new(&descriptor, PollFlags::IN)], Some(&limit))?;
    Ok(())
}
