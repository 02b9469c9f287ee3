//! The system calls that put a process into namespaces of its own.
//!
//! Everything here is called in a process with one thread, right after it was made: in the supervisor
//! and, before it serves, in each member.

use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_bind, mount_change};
use rustix::thread::{LinkNameSpaceType, UnshareFlags};

/// A step that the system refused.
#[derive(Debug, thiserror::Error)]
#[error("{step}: {source}")]
pub(crate) struct StepError {
    pub(crate) step: &'static str,
    pub(crate) source: io::Error,
}

/// Names the step that an error came from.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> StepError {
    move |source| StepError { step, source: source.into() }
}

impl StepError {
    /// Whether the system does not let this user have namespaces, for good.
    pub(crate) fn is_refusal(&self) -> bool {
        let code = self.source.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        use rustix::io::Errno;
        // No space: the number of namespaces is limited, to 0 where they are not wanted. Invalid
        // and not implemented: the kernel has none of the kind.
        matches!(
            code,
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::INVAL | Errno::NOSYS)
        )
    }
}

/// Moves this process to namespaces of its own: network, host name, shared memory and mounts; and
/// its children to a process namespace of their own.
pub(crate) fn enter_all() -> Result<(), StepError> {
    let flags = UnshareFlags::NEWNET
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID;
    unshare(flags).map_err(step("new namespaces"))
}

/// Moves a member's first process to namespaces of its own; it is born in its process namespace.
pub(crate) fn enter_member() -> Result<(), StepError> {
    let flags =
        UnshareFlags::NEWNET | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC | UnshareFlags::NEWNS;
    unshare(flags).map_err(step("a member's namespaces"))
}

/// Makes this process root of a user namespace of its own, for users who are not root.
pub(crate) fn enter_user() -> Result<(), StepError> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER).map_err(step("a new user namespace"))?;
    let write = |path: &str, text: String| fs::write(path, text);
    // Groups can be mapped only by who can't change them (user_namespaces(7)).
    write("/proc/self/setgroups", "deny".to_owned()).map_err(step("setgroups"))?;
    write("/proc/self/uid_map", format!("0 {user} 1")).map_err(step("uid_map"))?;
    write("/proc/self/gid_map", format!("0 {group} 1")).map_err(step("gid_map"))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: the flags leave the descriptor table shared as it is, which is what would be unsafe.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// Where this process's children are born, to come back to.
pub(crate) struct Birthplace(OwnedFd);

impl Birthplace {
    /// This process's own process namespace.
    pub(crate) fn own() -> Result<Self, StepError> {
        rustix::fs::open("/proc/self/ns/pid", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())
            .map(Self)
            .map_err(step("/proc/self/ns/pid"))
    }

    /// Forks a child that is the first process of a new process namespace.
    pub(crate) fn fork_first(&self) -> Result<Forked, StepError> {
        unshare(UnshareFlags::NEWPID).map_err(step("a new process namespace"))?;
        let forked = fork()?;
        if let Forked::Parent(_) = forked {
            let kind = Some(LinkNameSpaceType::ProcessID);
            rustix::thread::move_into_link_name_space(self.0.as_fd(), kind)
                .map_err(step("back to the own process namespace"))?;
        }
        Ok(forked)
    }
}

/// Which side of a fork this is.
pub(crate) enum Forked {
    /// The one that forked, with the child's number in this side's process namespace.
    Parent(i32),
    /// The new one.
    Child,
}

/// Forks this process, which must have one thread.
pub(crate) fn fork() -> Result<Forked, StepError> {
    let threads = fs::read_dir("/proc/self/task").map_err(step("/proc/self/task"))?.count();
    assert_eq!(threads, 1, "only a process with one thread may fork and go on");
    // SAFETY: with one thread, checked above, nobody holds a lock that the child would inherit.
    match unsafe { libc::fork() } {
        -1 => Err(step("fork")(io::Error::last_os_error())),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Keeps what is mounted from now on from the rest of the machine, and mounts `/proc` anew, for
/// the process namespace this process is the first of.
pub(crate) fn mount_processes() -> Result<(), StepError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(step("private mounts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(step("mount /proc"))
}

/// Gives a member what a machine has of its own: `/sys`, by which programs find interfaces, shared
/// memory, and the names of the lab's hosts.
pub(crate) fn mount_machine(hosts_file: &Path) -> Result<(), StepError> {
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("sysfs", "/sys", "sysfs", flags, None).map_err(step("mount /sys"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", "/dev/shm", "tmpfs", flags, Some(c"mode=1777"))
        .map_err(step("mount /dev/shm"))?;
    mount_bind(hosts_file, "/etc/hosts").map_err(step("mount /etc/hosts"))
}

/// Sets the host name of this process's namespace.
pub(crate) fn set_host_name(name: &str) -> Result<(), StepError> {
    rustix::system::sethostname(name.as_bytes()).map_err(step("host name"))
}

/// Leaves IPv6 out of this process's network: its autoconfiguration would add packets.
pub(crate) fn disable_ipv6() -> Result<(), StepError> {
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        match fs::write(path, "1") {
            // A kernel without IPv6.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => other.map_err(step("disable_ipv6"))?,
        }
    }
    Ok(())
}
