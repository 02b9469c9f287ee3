//! Files that others name, written so that nothing but their content changes.
//!
//! A file is replaced whole, so a reader never sees half of it. What is no file of its own, a device, a pipe or a link,
//! is written in place: renaming a file over it would take it away, as root even `/dev/null`.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::OFlags;
use rustix::io::Errno;
use rustix::time::Timespec;

/// How long a device or pipe may take nothing, in seconds.
const STALLED_MAX_S: i64 = 10;

/// Links that are followed; the kernel's limit.
const LINKS_MAX: usize = 40;

/// How a path is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// There is a file, or nothing: it is replaced.
    File,
    /// A device, a pipe or a link: it is written in place.
    InPlace,
    /// A link to something that a process has open, such as `/dev/stdout`: it is added to.
    Open,
}

impl Place {
    /// Of a path.
    #[must_use]
    pub fn of(path: &Path) -> Self {
        let Ok(facts) = fs::symlink_metadata(path) else { return Self::File };
        let kind = facts.file_type();
        let is_special = kind.is_char_device()
            || kind.is_block_device()
            || kind.is_fifo()
            || kind.is_socket()
            || kind.is_symlink();
        match () {
            () if is_open_elsewhere(path) => Self::Open,
            () if is_special => Self::InPlace,
            () => Self::File,
        }
    }
}

/// Makes `bytes` what `path` holds; `mode` is that of a file that is made for it.
///
/// # Errors
/// If it can't be written; a file is then as it was.
pub fn write(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    match Place::of(path) {
        Place::File => replace(path, bytes, mode),
        Place::InPlace => write_in_place(path, OFlags::TRUNC, bytes, mode),
        Place::Open => write_in_place(path, OFlags::APPEND, bytes, mode),
    }
}

/// What a file holds, up to `bytes_max` bytes; more is an error. A path of another kind is read as it is, too, and not
/// waited for.
///
/// # Errors
/// If it can't be read, or holds more.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        let message = format!("it has more than {bytes_max} bytes");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, message));
    }
    Ok(bytes)
}

/// Whether the path leads through an entry of `/proc/PID/fd`.
fn is_open_elsewhere(path: &Path) -> bool {
    let mut at = path.to_owned();
    for _ in 0..LINKS_MAX {
        let folder = at.parent().unwrap_or(Path::new("/"));
        let folder = fs::canonicalize(folder).unwrap_or_default();
        let is_of_process = folder.starts_with("/proc") && folder.ends_with("fd");
        let Ok(target) = fs::read_link(&at) else { return false };
        if is_of_process {
            return true;
        }
        at = folder.join(target);
    }
    false
}

fn replace(path: &Path, bytes: &[u8], mode: u32) -> io::Result<()> {
    static DRAFTS: AtomicU32 = AtomicU32::new(0);
    // Relaxed: it only has to differ.
    let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
    let mut draft = path.as_os_str().to_owned();
    draft.push(format!(".{}.{number}", std::process::id()));
    let draft = PathBuf::from(draft);
    // A new file, so that nobody's link of that name is followed.
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&draft)?;
    let written = file.write_all(bytes).and_then(|()| fs::rename(&draft, path));
    if written.is_err() {
        // The error is told; a draft that stays as well is no other.
        let _ = fs::remove_file(&draft);
    }
    written
}

/// Writes without ever waiting for a reader that does not come.
fn write_in_place(path: &Path, how: OFlags, bytes: &[u8], mode: u32) -> io::Result<()> {
    let target = fs::metadata(path);
    if target.as_ref().is_ok_and(|facts| facts.file_type().is_block_device()) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is a disk"));
    }
    let flags = OFlags::NONBLOCK | OFlags::NOCTTY | how;
    let mut options = OpenOptions::new();
    // A link to nothing yet.
    options.create(target.is_err()).write(true).mode(mode);
    let mut file = options.custom_flags(flags.bits() as i32).open(path).map_err(|error| {
        let nobody = Errno::from_io_error(&error) == Some(Errno::NXIO);
        let explained = || io::Error::new(io::ErrorKind::NotConnected, "nobody reads it");
        if nobody { explained() } else { error }
    })?;
    let mut left = bytes;
    while !left.is_empty() {
        match file.write(left) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => left = &left[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => await_room(&file)?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn await_room(file: &File) -> io::Result<()> {
    let within = Timespec { tv_sec: STALLED_MAX_S, tv_nsec: 0 };
    match poll(&mut [PollFd::new(file, PollFlags::OUT)], Some(&within)) {
        Ok(0) => Err(io::Error::new(io::ErrorKind::TimedOut, "its reader stands still")),
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use rustix::fs::{FileType, Mode, mknodat};
    use tempfile::TempDir;

    use super::*;

    fn folder() -> TempDir {
        tempfile::tempdir().unwrap()
    }

    fn kind(path: &Path) -> fs::FileType {
        fs::symlink_metadata(path).unwrap().file_type()
    }

    #[test]
    fn files_are_replaced_and_links_lead_on() {
        let folder = folder();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        write(&file, b"first", 0o600).unwrap();
        write(&file, b"2nd", 0o600).unwrap();
        assert_eq!(read(&file, 3).unwrap(), b"2nd");
        symlink("file", &link).unwrap();
        write(&link, b"thr", 0o600).unwrap();
        assert!(kind(&link).is_symlink(), "the link stays");
        assert_eq!(read(&file, 10).unwrap(), b"thr");
        assert!(read(&file, 2).is_err(), "longer than allowed");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "no draft stays");
    }

    #[test]
    fn a_pipe_stays_and_is_not_waited_for() {
        let folder = folder();
        let pipe = folder.path().join("pipe");
        mknodat(rustix::fs::CWD, &pipe, FileType::Fifo, Mode::from(0o600), 0).unwrap();
        let nobody = write(&pipe, b"text", 0o600).unwrap_err();
        assert!(nobody.to_string().contains("nobody reads it"), "{nobody}");
        let flags = OFlags::NONBLOCK.bits() as i32;
        let mut reader = OpenOptions::new().read(true).custom_flags(flags).open(&pipe).unwrap();
        write(&pipe, b"text", 0o600).unwrap();
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "text");
        assert!(kind(&pipe).is_fifo());
    }

    #[test]
    fn what_is_open_is_added_to() {
        let folder = folder();
        let path = folder.path().join("out");
        fs::write(&path, "program's output\n").unwrap();
        let file = OpenOptions::new().append(true).open(&path).unwrap();
        let number = std::os::fd::AsRawFd::as_raw_fd(&file);
        let link = folder.path().join("stdout");
        symlink(format!("/proc/self/fd/{number}"), &link).unwrap();
        assert_eq!(Place::of(&link), Place::Open);
        write(&link, b"report\n", 0o600).unwrap();
        assert_eq!(read(&path, 100).unwrap(), b"program's output\nreport\n");
        assert!(kind(&link).is_symlink() && kind(&path).is_file());
    }

    /// Root makes a device in a folder of this test; others can't, and can't harm the one that is there.
    #[test]
    fn a_device_stays_a_device() {
        assert_eq!(Place::of(Path::new("/dev/null")), Place::InPlace);
        if !rustix::process::geteuid().is_root() {
            return write(Path::new("/dev/null"), b"text", 0o600).unwrap();
        }
        let folder = folder();
        let null = folder.path().join("null");
        let device = rustix::fs::makedev(1, 3);
        let made =
            mknodat(rustix::fs::CWD, &null, FileType::CharacterDevice, Mode::from(0o600), device);
        made.unwrap();
        match write(&null, b"text", 0o600) {
            Ok(()) => {}
            // Where the folder is mounted without devices.
            Err(error) => assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{error}"),
        }
        assert!(kind(&null).is_char_device());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
