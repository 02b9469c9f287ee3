//! The folder of a lab: all that a lab leaves on disk, and whether the lab lives.
//!
//! A lab lives as long as a process holds the lock on its folder: the process that brings it up,
//! its supervisor, or a member. The kernel releases the lock when the last of them ends, so a
//! folder whose lock is free belongs to no living lab.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

use crate::cores::Cores;
use crate::plan::Plan;
use crate::scheduling::Scheduling;

/// A lab's name, which is also the name of its folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabName(String);

/// Why a text is no lab name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("1 to 20 lower-case letters, digits and - are allowed")]
pub struct ParseLabNameError;

/// Sockets lie below the folder, and the path of a socket has at most 108 bytes.
const NAME_MAX_BYTES: usize = 20;

impl FromStr for LabName {
    type Err = ParseLabNameError;

    fn from_str(text: &str) -> Result<Self, ParseLabNameError> {
        let is_good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if text.is_empty() || text.len() > NAME_MAX_BYTES || !text.bytes().all(is_good) {
            return Err(ParseLabNameError);
        }
        Ok(Self(text.to_owned()))
    }
}

impl fmt::Display for LabName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lab's configuration, stored in its folder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabConfig {
    /// Its members and links.
    pub plan: Plan,
    /// The `tributary` program that its daemons run.
    pub program: PathBuf,
    /// How long aggregation nodes poll before they sleep, in microseconds.
    pub node_spin_us: u64,
    /// Whether aggregation nodes take short segments inside the kernel.
    pub node_kernel: bool,
    /// Where the programs of each host's service of rings sit; hosts have none without it.
    #[serde(default)]
    pub rings: Option<String>,
    /// Whether the manager gives groups multicast addresses for their results.
    pub has_multicast: bool,
    /// Whether frames between its members are authenticated.
    pub authenticates_frames: bool,
    /// Which cores each member has; `None` if all share all of them.
    #[serde(default)]
    pub cores: Option<Cores>,
}

/// A lab's folder, and the paths in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directory(PathBuf);

/// The lock on a lab's folder. Every process with a copy of the descriptor holds it.
#[derive(Debug)]
pub(crate) struct Lock(pub(crate) File);

impl Directory {
    /// The folder of the lab called `name`, of this user.
    #[must_use]
    pub fn of(name: &LabName) -> Self {
        Self(labs_folder().join(&name.0))
    }

    /// The folder at a path.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(path.to_owned())
    }

    /// The folder itself.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Socket at which a member accepts commands.
    #[must_use]
    pub fn socket(&self, member: &str) -> PathBuf {
        self.0.join("sockets").join(member)
    }

    /// Socket at which the switch of a lab with delay tells its counts.
    #[must_use]
    pub fn switch_socket(&self) -> PathBuf {
        self.0.join("sockets").join("switch")
    }

    /// The temporary folder of a member's processes.
    #[must_use]
    pub fn temporary(&self, member: &str) -> PathBuf {
        self.0.join("tmp").join(member)
    }

    /// The log of a member's daemon.
    #[must_use]
    pub fn log(&self, member: &str) -> PathBuf {
        self.0.join("log").join(member)
    }

    /// The token that manager, aggregators and jobs share.
    #[must_use]
    pub fn token(&self) -> PathBuf {
        self.0.join("token")
    }

    /// The manager's description of the fabric.
    #[must_use]
    pub fn topology(&self) -> PathBuf {
        self.0.join("topology.toml")
    }

    /// The members' `/etc/hosts`.
    #[must_use]
    pub fn hosts_file(&self) -> PathBuf {
        self.0.join("hosts")
    }

    /// The program that launchers call to run a command on another host.
    #[must_use]
    pub fn launch_agent(&self) -> PathBuf {
        self.0.join("launch-agent")
    }

    fn config(&self) -> PathBuf {
        self.0.join("lab.json")
    }

    fn scheduling(&self) -> PathBuf {
        self.0.join("scheduling.json")
    }

    fn process(&self) -> PathBuf {
        self.0.join("pid")
    }

    fn lock_file(&self) -> PathBuf {
        self.0.join("lock")
    }

    /// Makes the folder if it is missing, and takes its lock; `None` if another process holds it.
    pub(crate) fn create_and_lock(&self) -> io::Result<Option<Lock>> {
        let labs = self.0.parent().expect("a lab's folder lies in the folder of all labs");
        loop {
            fs::DirBuilder::new().recursive(true).mode(0o700).create(labs)?;
            let made = fs::DirBuilder::new().mode(0o700).create(&self.0);
            if let Err(error) = made {
                match error.kind() {
                    io::ErrorKind::AlreadyExists => {}
                    // The end of the last lab removed the folder of all labs.
                    io::ErrorKind::NotFound => continue,
                    _ => return Err(error),
                }
            }
            match self.try_lock(true) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                other => return other,
            }
        }
    }

    /// Takes the lock of an existing folder; `None` if another process holds it.
    pub(crate) fn lock(&self) -> io::Result<Option<Lock>> {
        self.try_lock(false)
    }

    fn try_lock(&self, create: bool) -> io::Result<Option<Lock>> {
        let path = self.lock_file();
        let mut options = OpenOptions::new();
        let file = options
            .read(true)
            .write(true)
            .create(create)
            .truncate(false)
            .mode(0o600)
            .open(&path)?;
        match flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(rustix::io::Errno::WOULDBLOCK) => return Ok(None),
            Err(error) => return Err(error.into()),
        }
        // The file may have been removed, with its folder, before it was locked.
        if fs::metadata(&path)?.ino() != file.metadata()?.ino() {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(Some(Lock(file)))
    }

    /// Removes everything but the lock file, and also an earlier lab's control group.
    pub(crate) fn empty(&self) -> io::Result<()> {
        if let Ok(scheduling) = self.read_scheduling() {
            scheduling.remove()?;
        }
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                fs::remove_dir_all(entry.path())?;
            } else if entry.path() != self.lock_file() {
                fs::remove_file(entry.path())?;
            }
        }
        Ok(())
    }

    /// Removes the folder, and the folder of all labs if this was the last. The lock shows that
    /// nobody uses it.
    pub(crate) fn remove(&self, _lock: &Lock) -> io::Result<()> {
        self.empty()?;
        fs::remove_file(self.lock_file())?;
        fs::remove_dir(&self.0)?;
        if let Some(labs) = self.0.parent() {
            // Fails while other labs are there.
            let _ = fs::remove_dir(labs);
        }
        Ok(())
    }

    /// Notes the process whose end ends the lab.
    pub(crate) fn write_process(&self, process: i32) -> io::Result<()> {
        write_at_once(&self.process(), process.to_string().as_bytes(), 0o600)
    }

    /// The process whose end ends the lab; `None` if none was noted yet.
    pub(crate) fn read_process(&self) -> Option<i32> {
        fs::read_to_string(self.process()).ok()?.trim().parse().ok().filter(|pid| *pid > 1)
    }

    /// Notes how the lab is scheduled, above all which control group to remove.
    pub(crate) fn write_scheduling(&self, scheduling: &Scheduling) -> io::Result<()> {
        let text = serde_json::to_vec(scheduling).map_err(io::Error::other)?;
        write_at_once(&self.scheduling(), &text, 0o600)
    }

    /// Reads how the lab is scheduled.
    ///
    /// # Errors
    /// If there is no such file, or it is not of this program's version.
    pub fn read_scheduling(&self) -> io::Result<Scheduling> {
        let text = fs::read(self.scheduling())?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }

    /// Writes what the lab is brought up with.
    pub(crate) fn write_config(&self, config: &LabConfig) -> io::Result<()> {
        let text = serde_json::to_vec_pretty(config).map_err(io::Error::other)?;
        write_at_once(&self.config(), &text, 0o600)
    }

    /// Reads what the lab was brought up with.
    ///
    /// # Errors
    /// If there is no such file, or it is not of this program's version.
    pub fn read_config(&self) -> io::Result<LabConfig> {
        let text = fs::read(self.config())?;
        serde_json::from_slice(&text).map_err(io::Error::other)
    }
}

/// Replaces a file atomically: readers see all of one write, also if several processes write at
/// once.
pub(crate) fn write_at_once(path: &Path, text: &[u8], mode: u32) -> io::Result<()> {
    use std::io::Write as _;
    static WRITTEN: AtomicU32 = AtomicU32::new(0);
    // Relaxed: only the number itself is shared.
    let number = WRITTEN.fetch_add(1, Ordering::Relaxed);
    let mut new = path.as_os_str().to_owned();
    new.push(format!(".{}-{number}.new", std::process::id()));
    let mut file =
        OpenOptions::new().write(true).create(true).truncate(true).mode(mode).open(&new)?;
    file.write_all(text)?;
    drop(file);
    fs::rename(&new, path)
}

/// Names of all labs of this user that have a folder.
#[must_use]
pub fn names() -> Vec<LabName> {
    let Ok(entries) = fs::read_dir(labs_folder()) else { return Vec::new() };
    let mut names: Vec<LabName> =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    names.sort_by(|left, right| left.0.cmp(&right.0));
    names
}

/// The folder of this user's labs.
fn labs_folder() -> PathBuf {
    let user = rustix::process::geteuid();
    if user.is_root() {
        return PathBuf::from("/run/tributary-lab");
    }
    match std::env::var_os("XDG_RUNTIME_DIR").filter(|path| !path.is_empty()) {
        Some(path) => PathBuf::from(path).join("tributary-lab"),
        None => PathBuf::from(format!("/tmp/tributary-lab-{}", user.as_raw())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        for good in ["lab", "t-1", "01234567890123456789"] {
            assert_eq!(good.parse::<LabName>().unwrap().to_string(), good);
        }
        for bad in ["", "../x", "Lab", "a b", "012345678901234567890", "."] {
            assert_eq!(bad.parse::<LabName>(), Err(ParseLabNameError), "{bad}");
        }
    }

    #[test]
    fn several_may_write_one_file_at_once() {
        let path = std::env::temp_dir().join(format!("tributary-lab-file-{}", std::process::id()));
        std::thread::scope(|scope| {
            for writer in 0..4_u8 {
                let path = &path;
                scope.spawn(move || {
                    for _ in 0..100 {
                        write_at_once(path, &[writer; 64], 0o600).unwrap();
                        let read = fs::read(path).unwrap();
                        assert!(read.len() == 64 && read.iter().all(|byte| *byte == read[0]));
                    }
                });
            }
        });
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_folder_is_locked_by_one_at_a_time_and_removed_whole() {
        let labs = std::env::temp_dir().join(format!("tributary-lab-test-{}", std::process::id()));
        let directory = Directory::at(&labs.join("one"));
        let lock = directory.create_and_lock().unwrap().expect("nobody else has it");
        assert!(directory.create_and_lock().unwrap().is_none());
        directory.write_process(77).unwrap();
        assert_eq!(directory.read_process(), Some(77));
        directory.remove(&lock).unwrap();
        assert!(!labs.exists());
        // The lock of a folder that is gone is worth nothing.
        assert_eq!(directory.lock().unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
