//! Direct access to the memory of the group's other processes: cross-memory attach, where the
//! kernel grants it.
//!
//! Owns the two system calls (`process_vm_readv(2)`, `process_vm_writev(2)`), the probe that finds
//! out whether they work, and why they do not. It must not know operations. The calls move bytes
//! without the other process taking part, and never wait for it; a denial is an error at once. What
//! denies them: another user (or another user namespace without `CAP_SYS_PTRACE`), a
//! process that is not dumpable, Yama's `ptrace_scope`, a seccomp filter, a kernel built without
//! them, and a peer in another pid namespace, whose pid means someone else here.
//!
//! What was granted once may be refused later: a change of credentials makes a process undumpable, and memory of
//! a device, or secret memory, is no other process's. Then all ranks stage (`direct`).
//!
//! # The probe
//!
//! Every process publishes where its probe words lie and which 128 random bits are in them. A peer
//! reads them through the kernel. Only if it finds those very bits is the process behind the pid
//! the peer; only then does it try to write, into a word that is there for nothing else. The words
//! are static, so that a late probe still finds them.
//!
//! What remains: a peer that is killed in the middle of an operation, and whose pid is given to
//! another process of the same user before the operation's last call, some microseconds later.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use super::failure::{Lost, LostCause, Unmoved};
use super::process::Identity;
use super::sync::step;

/// Whether long vectors go directly from process to process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DirectAccess {
    /// Not known yet: each rank knows its own access, and the first long operation exchanges it.
    Unknown,
    /// All ranks can access the memory of all others.
    Granted,
    /// Some rank cannot access the memory of some other.
    Denied,
}

/// Why a rank cannot use the memory of another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("local rank {local_rank} does not reach the memory of local rank {peer}: {cause}")]
pub struct Unreachable {
    /// The rank that was denied.
    pub local_rank: u32,
    /// The rank whose memory it asked for.
    pub peer: u32,
    /// Why.
    pub cause: UnreachableCause,
}

/// What denied access to a peer's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum UnreachableCause {
    /// The user turned it off.
    TurnedOff,
    /// The peer lives in another pid namespace.
    OtherNamespace,
    /// The pid of the peer belongs to a process with other memory.
    OtherProcess,
    /// The rank runs under valgrind, which does not see what other processes write to its memory, and would
    /// call that uninitialised.
    Valgrind,
    /// `process_vm_readv` said so.
    Read(Errno),
    /// `process_vm_writev` said so, though reading is allowed.
    Write(Errno),
}

impl fmt::Display for UnreachableCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TurnedOff => f.write_str("turned off (TRIBUTARY_CROSS_MEMORY)"),
            Self::OtherNamespace => f.write_str("it is in another pid namespace"),
            Self::OtherProcess => f.write_str("its pid is that of another process here"),
            Self::Valgrind => f.write_str("valgrind does not see what other processes write"),
            Self::Read(errno) => write!(f, "process_vm_readv: {errno}"),
            Self::Write(errno) => write!(f, "process_vm_writev: {errno}"),
        }
    }
}

/// The word of a registration in which a rank publishes what its probe found. Zero: not probed yet.
pub(super) fn outcome_word(outcome: Result<(), Unreachable>) -> u64 {
    let Err(Unreachable { peer, cause, .. }) = outcome else { return 1 << 56 };
    let (kind, errno) = match cause {
        UnreachableCause::TurnedOff => (2, 0),
        UnreachableCause::OtherNamespace => (3, 0),
        UnreachableCause::OtherProcess => (4, 0),
        UnreachableCause::Read(errno) => (5, errno.raw_os_error()),
        UnreachableCause::Write(errno) => (6, errno.raw_os_error()),
        UnreachableCause::Valgrind => (7, 0),
    };
    kind << 56 | u64::from(peer) << 32 | u64::from(errno as u32)
}

/// What the word of `local_rank` says; `None` if it has not probed yet.
pub(super) fn outcome_of_word(local_rank: u32, word: u64) -> Option<Result<(), Unreachable>> {
    // The kernel's error numbers, and nothing else: the word is shared memory.
    let errno = || Errno::from_raw_os_error((word & 0xffff).clamp(1, 4095) as i32);
    let cause = match word >> 56 {
        0 => return None,
        1 => return Some(Ok(())),
        2 => UnreachableCause::TurnedOff,
        3 => UnreachableCause::OtherNamespace,
        5 => UnreachableCause::Read(errno()),
        6 => UnreachableCause::Write(errno()),
        7 => UnreachableCause::Valgrind,
        // The word is this library's own; this is the best reading of anything else.
        _ => UnreachableCause::OtherProcess,
    };
    Some(Err(Unreachable { local_rank, peer: (word >> 32 & 0xff_ffff) as u32, cause }))
}

/// What other processes read, and write, to find out whether they can.
#[repr(C)]
struct ProbeWords {
    marks: [AtomicU64; 2],
    inbox: AtomicU64,
}

static PROBE: ProbeWords =
    ProbeWords { marks: [const { AtomicU64::new(0) }; 2], inbox: AtomicU64::new(0) };

/// Where a process's probe words are, and what they hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Probe {
    pub(super) address: u64,
    pub(super) marks: [u64; 2],
}

impl Probe {
    /// The calling process's own.
    pub(super) fn own() -> Result<Self, Errno> {
        static MARKS: OnceLock<Result<[u64; 2], Errno>> = OnceLock::new();
        let marks = *MARKS.get_or_init(|| {
            let mut bytes = [0; 16];
            rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
            let marks = [0, 8]
                .map(|at| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes")));
            for (word, mark) in PROBE.marks.iter().zip(marks) {
                // Relaxed: read by other processes through the kernel, after they were told.
                word.store(mark, Ordering::Relaxed);
            }
            Ok(marks)
        });
        Ok(Self { address: (&raw const PROBE).expose_provenance() as u64, marks: marks? })
    }

    /// Whether the memory of `peer`, whose probe this is, can be read and written.
    pub(super) fn run(self, peer: Identity, own: Identity) -> Result<(), UnreachableCause> {
        if peer.pid_namespace != own.pid_namespace {
            return Err(UnreachableCause::OtherNamespace);
        }
        let mut seen = [0_u64; 2];
        // SAFETY: `seen` is 16 bytes of this frame.
        unsafe { read(peer.pid, self.address, seen.as_mut_ptr().cast(), 16) }
            .map_err(UnreachableCause::Read)?;
        if seen != self.marks {
            return Err(UnreachableCause::OtherProcess);
        }
        let inbox = self.address + std::mem::offset_of!(ProbeWords, inbox) as u64;
        // SAFETY: the marks have shown that the peer's probe words are at this address; the inbox
        // is part of them, and nothing ever depends on it.
        unsafe { write(peer.pid, inbox, seen.as_ptr().cast(), 8) }.map_err(UnreachableCause::Write)
    }
}

/// One rank's access to the others' memory.
pub(super) struct PeerMemory {
    /// By local rank.
    pids: Vec<u32>,
    pub(super) own_probe: Result<(), Unreachable>,
    pub(super) direct_access: DirectAccess,
    /// Where pieces of the peers' vectors are reduced; made by the first long operation.
    pub(super) scratch: Vec<u8>,
    /// Why the operation in progress cannot be finished.
    pub(super) failure: Option<Lost>,
}

impl PeerMemory {
    pub(super) fn new(pids: Vec<u32>, own_probe: Result<(), Unreachable>) -> Self {
        Self {
            pids,
            own_probe,
            direct_access: DirectAccess::Unknown,
            scratch: Vec::new(),
            failure: None,
        }
    }

    /// Copies `len_bytes` at `address` of `peer` to `target`.
    ///
    /// # Safety
    /// `target` is valid for writing `len_bytes`.
    pub(super) unsafe fn read(
        &self,
        peer: u32,
        address: u64,
        target: *mut u8,
        len_bytes: usize,
    ) -> Result<(), Unmoved> {
        // SAFETY: `target` is valid for `len_bytes`, by this function's contract.
        unsafe { read(self.pids[peer as usize], address, target, len_bytes) }
            .map_err(|errno| why_unmoved(peer, errno))
    }

    /// Copies `len_bytes` at `source` to `address` of `peer`.
    ///
    /// # Safety
    /// `source` is valid for reading `len_bytes`, and the peer has published the memory at `address`
    /// for this rank to write to.
    pub(super) unsafe fn write(
        &self,
        peer: u32,
        address: u64,
        source: *const u8,
        len_bytes: usize,
    ) -> Result<(), Unmoved> {
        // SAFETY: `source` is valid for `len_bytes`, and the peer expects the write, by this
        // function's contract.
        unsafe { write(self.pids[peer as usize], address, source, len_bytes) }
            .map_err(|errno| why_unmoved(peer, errno))
    }
}

fn why_unmoved(local_rank: u32, errno: Errno) -> Unmoved {
    match errno {
        Errno::SRCH => Unmoved::Lost(Lost::new(local_rank, LostCause::Died)),
        _ => Unmoved::Refused,
    }
}

/// # Safety
/// `target` is valid for writing `len_bytes`.
unsafe fn read(pid: u32, address: u64, target: *mut u8, len_bytes: usize) -> Result<(), Errno> {
    transfer(len_bytes, |done, rest| {
        let local = libc::iovec { iov_base: target.wrapping_add(done).cast(), iov_len: rest };
        let remote = remote(address, done, rest);
        // SAFETY: `local` is the rest of `target`, valid by this function's contract; the kernel
        // checks `remote`.
        unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) }
    })
}

/// # Safety
/// `source` is valid for reading `len_bytes`, and the process expects a write at `address`.
unsafe fn write(pid: u32, address: u64, source: *const u8, len_bytes: usize) -> Result<(), Errno> {
    transfer(len_bytes, |done, rest| {
        let base = source.wrapping_add(done).cast_mut().cast();
        let local = libc::iovec { iov_base: base, iov_len: rest };
        let remote = remote(address, done, rest);
        // SAFETY: `local` is the rest of `source`, valid by this function's contract and only read;
        // the kernel checks `remote`.
        unsafe { libc::process_vm_writev(pid as libc::pid_t, &local, 1, &remote, 1, 0) }
    })
}

/// An address is only ever used by the kernel, in the address space of the peer.
fn remote(address: u64, done: usize, rest: usize) -> libc::iovec {
    let base = std::ptr::without_provenance_mut::<u8>(address as usize).wrapping_add(done);
    libc::iovec { iov_base: base.cast(), iov_len: rest }
}

/// Calls until `len_bytes` are moved: the kernel stops early at a page it cannot have, and tells
/// why at the next call.
fn transfer(
    len_bytes: usize,
    mut call: impl FnMut(usize, usize) -> libc::ssize_t,
) -> Result<(), Errno> {
    let mut done = 0;
    while done < len_bytes {
        step();
        #[cfg(test)]
        granting::take_one()?;
        match call(done, len_bytes - done) {
            0 => return Err(Errno::FAULT),
            moved if moved > 0 => done += moved as usize,
            _ => match last_errno() {
                Errno::INTR => {}
                errno => return Err(errno),
            },
        }
    }
    Ok(())
}

fn last_errno() -> Errno {
    Errno::from_io_error(&std::io::Error::last_os_error()).unwrap_or(Errno::FAULT)
}

/// Has the kernel, as it seems, refuse this thread's calls after so many.
#[cfg(test)]
pub(super) mod granting {
    use std::cell::Cell;

    use rustix::io::Errno;

    thread_local! {
        static CALLS_LEFT: Cell<u64> = const { Cell::new(u64::MAX) };
    }

    pub(crate) fn only(calls: u64) {
        CALLS_LEFT.set(calls);
    }

    pub(super) fn take_one() -> Result<(), Errno> {
        let left = CALLS_LEFT.get();
        CALLS_LEFT.set(left.saturating_sub(1));
        if left == 0 { Err(Errno::PERM) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_words_say_what_was_meant() {
        assert_eq!(outcome_of_word(3, 0), None);
        assert_eq!(outcome_of_word(3, outcome_word(Ok(()))), Some(Ok(())));
        for cause in [
            UnreachableCause::TurnedOff,
            UnreachableCause::OtherNamespace,
            UnreachableCause::OtherProcess,
            UnreachableCause::Valgrind,
            UnreachableCause::Read(Errno::PERM),
            UnreachableCause::Write(Errno::NOSYS),
        ] {
            let outcome = Err(Unreachable { local_rank: 3, peer: 1023, cause });
            assert_eq!(outcome_of_word(3, outcome_word(outcome)), Some(outcome));
        }
    }

    #[test]
    fn a_probe_tells_this_process_from_others_and_from_nobody() {
        let own = Identity::own();
        let probe = Probe::own().unwrap();
        assert_eq!(probe.run(own, own), Ok(()));
        let elsewhere = Identity { pid_namespace: own.pid_namespace + 1, ..own };
        assert_eq!(probe.run(elsewhere, own), Err(UnreachableCause::OtherNamespace));
        let other_marks = Probe { marks: [probe.marks[0], !probe.marks[1]], ..probe };
        assert_eq!(other_marks.run(own, own), Err(UnreachableCause::OtherProcess));
        let nowhere = Probe { address: 0, ..probe };
        assert_eq!(nowhere.run(own, own), Err(UnreachableCause::Read(Errno::FAULT)));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let ended = Identity { pid: child.id(), ..own };
        assert_eq!(probe.run(ended, own), Err(UnreachableCause::Read(Errno::SRCH)));
    }
}
