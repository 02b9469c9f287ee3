//! Puts all processes of a lab into one scheduling group.
//!
//! With `CONFIG_SCHED_AUTOGROUP` (sched(7), "The autogroup feature") each session is a scheduling
//! group, and a process that yields gives its core only to others of its session. Launchers start
//! each rank in a session of its own. With more ranks than cores, a wait for another rank then
//! lasts whole time slices. On a cluster every rank has a core, so a lab should not measure that.
//! Processes in a control group of the `cpu` controller are exempt (cgroups(7)), so a lab makes one
//! and runs in it.

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// How long the kernel may take to empty a control group whose processes were killed.
const EMPTY_WITHIN: Duration = Duration::from_secs(5);

const POLL: Duration = Duration::from_millis(10);

/// A hundred times what a control group has as a rule, in both versions.
const SHARES: [(&str, &str); 2] = [("cpu.weight", "10000"), ("cpu.shares", "102400")];

/// How the processes of a lab are scheduled relative to each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Scheduling {
    /// As one group already: the kernel does not group by session, or the lab was brought up in a
    /// control group.
    Alike,
    /// As one group, in a control group that the lab has made, with this folder.
    Together(PathBuf),
    /// Each session as a group of its own, with the reason why there is no control group.
    Apart(String),
}

/// This process's place among the control groups with the `cpu` controller.
struct ControlGroups {
    /// Folder of the root group.
    top: PathBuf,
    /// Path of its own group from the root group, which is `/`.
    own: String,
    /// Whether this is cgroup version 2, where each controller must be enabled for a subtree.
    is_unified: bool,
}

impl fmt::Display for Scheduling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alike => f.write_str("as one group"),
            Self::Together(folder) => write!(f, "as one group, {}", folder.display()),
            Self::Apart(reason) => write!(
                f,
                "each session as a group of its own ({reason}): with more processes than cores, waits \
                 last longer than they need"
            ),
        }
    }
}

impl Scheduling {
    /// Decides how a lab brought up by this process will be scheduled. Makes nothing.
    pub(crate) fn plan(lab: &str) -> Self {
        let enabled = fs::read_to_string("/proc/sys/kernel/sched_autogroup_enabled");
        if !enabled.is_ok_and(|text| text.trim() == "1") {
            return Self::Alike;
        }
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let place = ControlGroups::among(&read("/proc/self/cgroup"), &read("/proc/self/mountinfo"));
        match place {
            None => Self::Apart("no cpu control groups are mounted".to_owned()),
            Some(place) if place.is_exempt() => Self::Alike,
            Some(place) => Self::Together(place.top.join(format!("tributary-lab-{lab}"))),
        }
    }

    /// Makes the control group, if one is planned, and returns the outcome.
    pub(crate) fn make(self) -> Self {
        let Self::Together(folder) = &self else { return self };
        let made = match fs::create_dir(folder) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error.to_string()),
            _ if has_processor_controller(folder) => Ok(()),
            _ => {
                // Without the controller it is useless. If it can't be removed, `down` tries again.
                let _ = fs::remove_dir(folder);
                Err("the cpu controller is not enabled there".to_owned())
            }
        };
        match made {
            Ok(()) => self,
            Err(reason) => Self::Apart(format!("{}: {reason}", folder.display())),
        }
    }

    /// Lets the control group, if there is one, go before other programs of this machine: a rank that yields must not lose
    /// its core to a compiler for milliseconds.
    pub(crate) fn go_first(&self) -> io::Result<()> {
        let Self::Together(folder) = self else { return Ok(()) };
        let (file, share) = SHARES
            .map(|(file, share)| (folder.join(file), share))
            .into_iter()
            .find(|(file, _)| file.exists())
            .ok_or(io::ErrorKind::NotFound)?;
        fs::write(file, share)
    }

    /// Moves this process, which has one thread, to the control group, if there is one.
    pub(crate) fn enter(&self) -> io::Result<()> {
        match self {
            Self::Together(folder) => fs::write(folder.join("cgroup.procs"), "0"),
            Self::Alike | Self::Apart(_) => Ok(()),
        }
    }

    /// Moves this process back out of it.
    pub(crate) fn leave(&self) -> io::Result<()> {
        match self {
            Self::Together(folder) => fs::write(folder.with_file_name("cgroup.procs"), "0"),
            Self::Alike | Self::Apart(_) => Ok(()),
        }
    }

    /// Removes the control group, whose processes have ended or are ending.
    pub(crate) fn remove(&self) -> io::Result<()> {
        let Self::Together(folder) = self else { return Ok(()) };
        let hangs_at = Instant::now() + EMPTY_WITHIN;
        loop {
            match fs::remove_dir(folder) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
                Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                    if Instant::now() >= hangs_at {
                        return Err(error);
                    }
                    thread::sleep(POLL);
                }
                other => return other,
            }
        }
    }
}

impl ControlGroups {
    /// Parses `/proc/self/cgroup` (cgroups(7)) and `/proc/self/mountinfo`
    /// (proc_pid_mountinfo(5)); `None` where no mounted hierarchy can schedule processors.
    fn among(groups: &str, mounts: &str) -> Option<Self> {
        let first = groups.lines().find_map(|line| {
            let (_, rest) = line.split_once(':')?;
            let (controllers, own) = rest.split_once(':')?;
            controllers.split(',').any(|name| name == "cpu").then_some(own)
        });
        let second = || groups.lines().find_map(|line| line.strip_prefix("0::"));
        let (own, is_unified) = match first {
            Some(own) => (own, false),
            None => (second()?, true),
        };
        let top = mounts.lines().find_map(|line| {
            let (fields, super_fields) = line.split_once(" - ")?;
            let mut super_fields = super_fields.split(' ');
            let (kind, options) = (super_fields.next()?, super_fields.nth(1)?);
            let is_it = match is_unified {
                true => kind == "cgroup2",
                false => kind == "cgroup" && options.split(',').any(|name| name == "cpu"),
            };
            is_it.then(|| fields.split(' ').nth(4)).flatten()
        })?;
        Some(Self { top: top.into(), own: own.to_owned(), is_unified })
    }

    /// Whether this process's control group schedules it, so that its session does not.
    fn is_exempt(&self) -> bool {
        let below_top = self.own.trim_start_matches('/');
        !below_top.is_empty()
            && (!self.is_unified || has_processor_controller(&self.top.join(below_top)))
    }
}

/// Whether a control group other than the root schedules its processes.
fn has_processor_controller(folder: &Path) -> bool {
    ["cpu.weight", "cpu.shares"].iter().any(|file| folder.join(file).exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
24 1 0:22 / /sys rw - sysfs sysfs rw
31 24 0:27 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw,nsdelegate
32 24 0:28 / /sys/fs/cgroup/cpuset rw,relatime shared:9 - cgroup cgroup rw,cpuset
33 24 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:10 - cgroup cgroup rw,cpu,cpuacct
";

    #[test]
    fn the_first_version_counts_if_it_has_the_controller() {
        let place =
            ControlGroups::among("3:cpuset:/x\n2:cpu,cpuacct:/\n0::/user.slice\n", MOUNTS).unwrap();
        assert_eq!(place.top, Path::new("/sys/fs/cgroup/cpu,cpuacct"));
        assert_eq!((place.own.as_str(), place.is_unified), ("/", false));
        assert!(!place.is_exempt());
        let job = ControlGroups::among("2:cpuacct,cpu:/slurm/job_7\n", MOUNTS).unwrap();
        assert!(job.is_exempt());
    }

    #[test]
    fn the_second_version_counts_where_the_controller_was_handed_down() {
        let place = ControlGroups::among("3:cpuset:/x\n0::/user.slice\n", MOUNTS).unwrap();
        assert_eq!(place.top, Path::new("/sys/fs/cgroup/unified"));
        assert!(place.is_unified);
        let folder = std::env::temp_dir().join(format!("tributary-group-{}", std::process::id()));
        fs::create_dir_all(folder.join("job")).unwrap();
        let place = ControlGroups { top: folder.clone(), own: "/job".to_owned(), is_unified: true };
        assert!(!place.is_exempt(), "its sessions schedule it");
        fs::write(folder.join("job/cpu.weight"), "100").unwrap();
        assert!(place.is_exempt());
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn without_a_mounted_hierarchy_there_is_no_place() {
        assert!(
            ControlGroups::among("2:cpu:/\n", "24 1 0:22 / /sys rw - sysfs sysfs rw\n").is_none()
        );
        assert!(ControlGroups::among("", MOUNTS).is_none());
    }

    #[test]
    fn a_group_goes_first_by_the_share_that_its_version_knows() {
        for (file, share) in SHARES {
            let folder =
                std::env::temp_dir().join(format!("tributary-{file}-{}", std::process::id()));
            fs::create_dir(&folder).unwrap();
            let group = Scheduling::Together(folder.clone());
            assert_eq!(group.go_first().unwrap_err().kind(), io::ErrorKind::NotFound);
            fs::write(folder.join(file), "100").unwrap();
            group.go_first().unwrap();
            assert_eq!(fs::read_to_string(folder.join(file)).unwrap(), share);
            fs::remove_dir_all(folder).unwrap();
        }
        Scheduling::Alike.go_first().unwrap();
    }

    #[test]
    fn what_cannot_be_made_leaves_the_sessions_apart() {
        let nowhere = Scheduling::Together("/proc/no-such-folder/group".into());
        assert!(matches!(nowhere.make(), Scheduling::Apart(reason) if reason.contains("group: ")));
        assert!(Scheduling::Together("/proc/no-such-folder".into()).remove().is_ok());
    }
}
