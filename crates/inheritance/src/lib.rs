//! Keeps the ends of our connections out of forked children.
//!
//! A program may fork a worker, such as a data loader, that lives longer than the process itself. The worker has copies of
//! all descriptors, and the kernel ends a connection only when the last copy is closed: the other end would hear of the
//! process's death when the worker ends. Close-on-exec does not help a child that never calls exec.
//!
//! So each process has a table of the descriptors that are ends of connections. Every child of `fork` replaces its copies by
//! an end of nothing as its first act. The numbers stay in use, so objects in the child that still own them close what is
//! theirs, and what they send reaches nobody.
//!
//! Children made by the raw system call `clone`, without the C library, keep their copies.

mod marks;

use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::sync::Once;

pub use marks::Marks;

/// Descriptors that the table has room for: as many as the kernel allows a process by default. Later ones are not kept
/// out of children.
const DESCRIPTORS_MAX: usize = 1 << 20;

/// What children must not keep.
static MARKED: Marks<{ DESCRIPTORS_MAX / u64::BITS as usize }> = Marks::new();

/// An owned descriptor that children of `fork` do not keep.
#[derive(Debug)]
pub struct Uninherited<T: AsFd>(T);

impl<T: AsFd> Uninherited<T> {
    /// Keeps a descriptor out of children that are forked from now on.
    pub fn new(owned: T) -> Self {
        replace_in_children();
        MARKED.mark(owned.as_fd().as_raw_fd());
        Self(owned)
    }
}

impl<T: AsFd> Drop for Uninherited<T> {
    /// Before the descriptor is closed: its number may be the program's next.
    fn drop(&mut self) {
        MARKED.unmark(self.0.as_fd().as_raw_fd());
    }
}

impl<T: AsFd> Deref for Uninherited<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T: AsFd> AsFd for Uninherited<T> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Has every child of this process replace its copies.
fn replace_in_children() {
    static REGISTERED: Once = Once::new();
    REGISTERED.call_once(|| {
        // SAFETY: the handler is a function of this library, and calls only what may be called in a child of a process with
        // threads. Without memory for it, children keep their copies, as they would without this module.
        let _ = unsafe { libc::pthread_atfork(None, None, Some(replace_copies)) };
    });
}

/// In the child, before `fork` returns there.
unsafe extern "C" fn replace_copies() {
    let mut substitute = -1;
    MARKED.take(|descriptor| substitute = replace(descriptor, substitute));
    if substitute >= 0 {
        // SAFETY: this function opened it, and nobody else knows of it.
        unsafe { libc::close(substitute) };
    }
}

/// Makes `descriptor` a copy of `substitute`, which is opened first if it is negative. Returns it for the next.
fn replace(descriptor: RawFd, mut substitute: RawFd) -> RawFd {
    // SAFETY: all calls may be made in a child of a process with threads. The descriptor is one that this process owns, as
    // its mark says, and its number names an open file again when this function returns.
    unsafe {
        if substitute < 0 {
            substitute = open_null();
        }
        if substitute < 0 {
            // All numbers are in use. With this one free, the next file gets it.
            libc::close(descriptor);
            substitute = open_null();
            if substitute == descriptor {
                return -1;
            }
        }
        if substitute >= 0 {
            libc::dup3(substitute, descriptor, libc::O_CLOEXEC);
        }
    }
    substitute
}

/// A file that reads as ended, and takes everything.
///
/// # Safety
/// May be called in a child of a process with threads.
unsafe fn open_null() -> RawFd {
    // SAFETY: the path is a C string.
    unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDWR | libc::O_CLOEXEC) }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::os::unix::net::UnixStream;
    use std::time::Duration;

    use super::*;

    /// Forks a child that does `body` and then sleeps until it is killed.
    fn fork(body: impl FnOnce()) -> libc::pid_t {
        // SAFETY: the child calls nothing but `body` and functions that may be called after `fork`.
        let child = unsafe { libc::fork() };
        if child == 0 {
            body();
            loop {
                // SAFETY: always allowed.
                unsafe { libc::pause() };
            }
        }
        child
    }

    fn end(child: libc::pid_t) {
        // SAFETY: the child is this test's own, and not waited for yet.
        unsafe {
            libc::kill(child, libc::SIGKILL);
            libc::waitpid(child, std::ptr::null_mut(), 0);
        }
    }

    #[test]
    fn a_connection_ends_with_its_process_whatever_children_live_on() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets can be made");
        let (kept, mut kept_end) = UnixStream::pair().expect("sockets can be made");
        theirs.set_read_timeout(Some(Duration::from_secs(10))).expect("a socket");
        kept_end.set_read_timeout(Some(Duration::from_millis(50))).expect("a socket");
        let ours = Uninherited::new(ours);
        let child = fork(|| {});
        drop(ours);
        drop(kept);
        assert_eq!(theirs.read(&mut [0]).expect("the end is heard"), 0);
        assert!(kept_end.read(&mut [0]).is_err(), "other descriptors are the child's as usual");
        end(child);
    }

    /// What a child does with its copies, closing them included, the other end does not see.
    #[test]
    fn a_child_reaches_nobody_over_its_copies_and_their_numbers_stay_taken() {
        let (ours, mut theirs) = UnixStream::pair().expect("sockets can be made");
        let (mut report, mut reported) = UnixStream::pair().expect("sockets can be made");
        let ours = Uninherited::new(ours);
        let number = ours.as_raw_fd();
        let child = fork(move || {
            let wrote = (&*ours).write(b"lost").is_ok();
            // SAFETY: only asks.
            let is_open = unsafe { libc::fcntl(number, libc::F_GETFD) } >= 0;
            drop(ours);
            let _ = report.write(&[u8::from(wrote), u8::from(is_open)]);
        });
        let mut seen = [9; 2];
        reported.read_exact(&mut seen).expect("the child reports");
        // A socket is written to by `send`, which a file that is none refuses.
        assert_eq!(seen[1], 1);
        // `fork` moved the parent's copy here as well, so the connection has ended, with nothing said.
        assert_eq!(theirs.read(&mut [0; 8]).expect("the end is heard"), 0);
        end(child);
    }

    #[test]
    fn a_closed_descriptor_is_not_marked() {
        let (one, _two) = UnixStream::pair().expect("sockets can be made");
        let number = one.as_raw_fd();
        let marked = || MARKED.is_marked(number);
        let one = Uninherited::new(one);
        assert!(marked());
        drop(one);
        assert!(!marked());
    }
}
