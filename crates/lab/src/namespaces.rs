//! The system calls that put a process into its own namespaces.
//!
//! All callers have one thread and are newly started: the supervisor, and each member before it
//! serves.

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

/// Adds to an error the step that failed.
pub(crate) fn step<E: Into<io::Error>>(step: &'static str) -> impl Fn(E) -> StepError {
    move |source| StepError { step, source: source.into() }
}

impl StepError {
    /// Whether the system permanently does not permit this user to make namespaces.
    pub(crate) fn is_refusal(&self) -> bool {
        let code = self.source.raw_os_error().map(rustix::io::Errno::from_raw_os_error);
        use rustix::io::Errno;
        // NOSPC: the number of namespaces is limited, to 0 where an administrator forbids them.
        // INVAL and NOSYS: the kernel lacks this kind of namespace.
        matches!(
            code,
            Some(Errno::PERM | Errno::ACCESS | Errno::NOSPC | Errno::INVAL | Errno::NOSYS)
        )
    }
}

/// Moves this process to new namespaces for network, host name, shared memory and mounts, and its
/// children to a new process namespace.
pub(crate) fn enter_all() -> Result<(), StepError> {
    let flags = UnshareFlags::NEWNET
        | UnshareFlags::NEWUTS
        | UnshareFlags::NEWIPC
        | UnshareFlags::NEWNS
        | UnshareFlags::NEWPID;
    unshare(flags).map_err(step("new namespaces"))
}

/// Moves a member's first process to new namespaces. It was forked into its process namespace.
pub(crate) fn enter_member() -> Result<(), StepError> {
    let flags =
        UnshareFlags::NEWNET | UnshareFlags::NEWUTS | UnshareFlags::NEWIPC | UnshareFlags::NEWNS;
    unshare(flags).map_err(step("a member's namespaces"))
}

/// Makes this process root of a new user namespace, for users who are not root.
pub(crate) fn enter_user() -> Result<(), StepError> {
    let user = rustix::process::geteuid().as_raw();
    let group = rustix::process::getegid().as_raw();
    unshare(UnshareFlags::NEWUSER).map_err(step("a new user namespace"))?;
    let write = |path: &str, text: String| fs::write(path, text);
    // A process may map groups only after it has given up `setgroups` (user_namespaces(7)).
    write("/proc/self/setgroups", "deny".to_owned()).map_err(step("setgroups"))?;
    write("/proc/self/uid_map", format!("0 {user} 1")).map_err(step("uid_map"))?;
    write("/proc/self/gid_map", format!("0 {group} 1")).map_err(step("gid_map"))
}

fn unshare(flags: UnshareFlags) -> rustix::io::Result<()> {
    // SAFETY: `unshare_unsafe` is unsafe because unsharing the descriptor table can break other
    // code (`UnshareFlags::FILES`). Callers in this module never pass that flag.
    unsafe { rustix::thread::unshare_unsafe(flags) }
}

/// The process namespace that this process's children normally start in.
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
    /// The parent, with the child's number in the parent's process namespace.
    Parent(i32),
    /// The child.
    Child,
}

/// Forks this process, which must have one thread.
pub(crate) fn fork() -> Result<Forked, StepError> {
    let threads = fs::read_dir("/proc/self/task").map_err(step("/proc/self/task"))?.count();
    assert_eq!(threads, 1, "only a process with one thread may fork and go on");
    // SAFETY: the process has one thread (checked above), so no other thread holds a lock that the
    // child would inherit locked.
    match unsafe { libc::fork() } {
        -1 => Err(step("fork")(io::Error::last_os_error())),
        0 => Ok(Forked::Child),
        child => Ok(Forked::Parent(child)),
    }
}

/// Makes later mounts invisible to the rest of the machine, and mounts a `/proc` for the process
/// namespace of this process.
pub(crate) fn mount_processes() -> Result<(), StepError> {
    mount_change("/", MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)
        .map_err(step("private mounts"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mount("proc", "/proc", "proc", flags, None).map_err(step("mount /proc"))
}

/// Gives a member what every machine has for itself: `/sys`, where programs find interfaces, shared
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

/// Disables IPv6 in this process's network, because its autoconfiguration would add packets.
pub(crate) fn disable_ipv6() -> Result<(), StepError> {
    for which in ["all", "default"] {
        let path = format!("/proc/sys/net/ipv6/conf/{which}/disable_ipv6");
        // A kernel without IPv6 has no such file.
        set_if_there(&path, "1").map_err(step("disable_ipv6"))?;
    }
    Ok(())
}

/// Keeps the machine's packet filter out of bridges in this process's network: no switch runs rules for routers. A
/// seventh of an 8-byte operation's time went there on a machine with `br_netfilter`, which containers load.
pub(crate) fn bypass_bridge_filter() -> Result<(), StepError> {
    for which in ["iptables", "ip6tables", "arptables"] {
        let path = format!("/proc/sys/net/bridge/bridge-nf-call-{which}");
        set_if_there(&path, "0").map_err(step("bridge-nf-call"))?;
    }
    Ok(())
}

/// Lets connections of this process's network keep their window while nothing is sent. With delay, a program that
/// computes between two messages would otherwise begin with ten packets each time.
pub(crate) fn keep_windows_open() -> io::Result<()> {
    set_if_there("/proc/sys/net/ipv4/tcp_slow_start_after_idle", "0")
}

fn set_if_there(path: &str, value: &str) -> io::Result<()> {
    match fs::write(path, value) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
