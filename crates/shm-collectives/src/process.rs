//! Identity of a process, and a watch that tells whether it has ended.
//!
//! A process is known by its pid and its start time, so that a pid that was given to a newcomer is
//! not mistaken for the peer. Watches make system calls, so they are asked in long waits only
//! (`liveness`).

use std::ffi::CStr;
use std::fs;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};

use rustix::event::{PollFd, PollFlags};
use rustix::process::{Pid, PidfdFlags};
use rustix::time::Timespec;

/// Which process a rank is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) pid: u32,
    /// From `/proc/PID/stat`; 0 where `/proc` is not to be had.
    pub(super) start_time_ticks: u64,
    /// Inode of the pid namespace in which `pid` counts; 0 where unknown.
    pub(super) pid_namespace: u64,
}

impl Identity {
    /// The identity of the calling process.
    pub(super) fn own() -> Self {
        let pid = std::process::id();
        let namespace = rustix::fs::stat("/proc/self/ns/pid");
        Self {
            pid,
            start_time_ticks: running_since(pid).unwrap_or(0),
            pid_namespace: namespace.map_or(0, |status| status.st_ino),
        }
    }
}

/// Whether valgrind runs the calling process: its tools have a library of theirs loaded before all others.
pub(super) fn is_under_valgrind() -> bool {
    static IS_LOADED: OnceLock<bool> = OnceLock::new();
    *IS_LOADED.get_or_init(|| {
        let mut found = false;
        // SAFETY: `note_valgrind` is called before this returns, with a pointer to `found` as its data.
        unsafe { libc::dl_iterate_phdr(Some(note_valgrind), (&raw mut found).cast()) };
        found
    })
}

/// # Safety
/// `library` is valid, its name null or terminated, and `found` points to a `bool` that nobody else uses.
unsafe extern "C" fn note_valgrind(
    library: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    found: *mut libc::c_void,
) -> libc::c_int {
    // SAFETY: `library` is valid, by this function's contract.
    let name = unsafe { (*library).dlpi_name };
    if name.is_null() {
        return 0;
    }
    // SAFETY: the name is terminated, by this function's contract.
    let name = unsafe { CStr::from_ptr(name) }.to_bytes();
    let file = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
    let is_valgrinds = file.starts_with(b"vgpreload_");
    if is_valgrinds {
        // SAFETY: `found` points to a `bool` that nobody else uses, by this function's contract.
        unsafe { *found.cast::<bool>() = true };
    }
    libc::c_int::from(is_valgrinds)
}

/// Tells whether one process has ended.
#[derive(Debug)]
pub(super) enum ProcessWatch {
    /// The process of this very thread, or one that cannot be seen from here: never found dead.
    Blind,
    /// Had ended before the watch began.
    Gone,
    /// A process descriptor; readable once the process has ended.
    Descriptor(Arc<OwnedFd>),
    /// By its start time, where process descriptors are not permitted.
    StartTime(Identity),
}

impl ProcessWatch {
    /// Watches the process `peer`, seen from the process `own`.
    pub(super) fn new(peer: Identity, own: Identity) -> Self {
        let comparable = peer.pid_namespace == own.pid_namespace && peer.pid_namespace != 0;
        if peer.pid == own.pid || !comparable || peer.start_time_ticks == 0 {
            return Self::Blind;
        }
        let descriptor = descriptor_of(peer);
        // Only now is the pid known to have meant the peer when the descriptor was opened.
        if running_since(peer.pid) != Some(peer.start_time_ticks) {
            return Self::Gone;
        }
        descriptor.map_or(Self::StartTime(peer), Self::Descriptor)
    }

    /// Whether the process has ended. Makes a system call.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            Self::Blind => false,
            Self::Gone => true,
            Self::Descriptor(descriptor) => {
                let mut poll = [PollFd::new(descriptor, PollFlags::IN)];
                let now = Timespec { tv_sec: 0, tv_nsec: 0 };
                rustix::event::poll(&mut poll, Some(&now)).is_ok_and(|ready| ready == 1)
            }
            Self::StartTime(peer) => running_since(peer.pid) != Some(peer.start_time_ticks),
        }
    }
}

/// Descriptors in use, so that a process holds one per peer, not one per peer and group.
static DESCRIPTORS: Mutex<Vec<(Identity, Weak<OwnedFd>)>> = Mutex::new(Vec::new());

fn descriptor_of(peer: Identity) -> Option<Arc<OwnedFd>> {
    let mut descriptors = DESCRIPTORS.lock().unwrap_or_else(PoisonError::into_inner);
    descriptors.retain(|(_, descriptor)| descriptor.strong_count() > 0);
    let known = descriptors.iter().find(|(identity, _)| *identity == peer);
    if let Some(descriptor) = known.and_then(|(_, descriptor)| descriptor.upgrade()) {
        return Some(descriptor);
    }
    let pid = Pid::from_raw(i32::try_from(peer.pid).ok()?)?;
    let descriptor = Arc::new(rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?);
    descriptors.push((peer, Arc::downgrade(&descriptor)));
    Some(descriptor)
}

/// Start time of a process that has not ended: field 22 of `/proc/PID/stat` (proc(5)).
fn running_since(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The second field is the program's name, in parentheses, and may hold anything.
    let mut fields = text[text.rfind(')')? + 1..].split_ascii_whitespace();
    let state = fields.next()?;
    if matches!(state, "Z" | "X" | "x") { None } else { fields.nth(18)?.parse().ok() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn a_child_is_seen_to_end_by_either_way_and_its_descriptor_is_shared() {
        let mut child =
            Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().expect("sleep starts");
        let own = Identity::own();
        let peer = Identity {
            pid: child.id(),
            start_time_ticks: running_since(child.id()).expect("the child runs"),
            pid_namespace: own.pid_namespace,
        };
        let watch = ProcessWatch::new(peer, own);
        let again = ProcessWatch::new(peer, own);
        if let (ProcessWatch::Descriptor(one), ProcessWatch::Descriptor(two)) = (&watch, &again) {
            assert!(Arc::ptr_eq(one, two));
        }
        let by_time = ProcessWatch::StartTime(peer);
        assert!(!watch.has_ended() && !by_time.has_ended());

        child.kill().expect("own child");
        child.wait().expect("own child");
        assert!(watch.has_ended() && by_time.has_ended());
        assert!(ProcessWatch::new(peer, own).has_ended(), "a watch that begins too late");
    }

    #[test]
    fn a_process_of_another_pid_namespace_is_never_declared_dead() {
        let own = Identity::own();
        let elsewhere = Identity { pid: 1, start_time_ticks: 7, pid_namespace: 1 };
        assert!(!ProcessWatch::new(elsewhere, own).has_ended());
    }
}
