//! What `LD_PRELOAD` is to hold, so that programs get the library.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::report::private_folder;

/// Folders for the link, besides the one for temporary files.
const FOLDERS: [&str; 4] = ["/tmp", "/var/tmp", "/dev/shm", "/run"];

/// Has AddressSanitizer start although its runtime is not the first library. It guards against a library that is
/// before it and brings an allocator; ours brings none.
const ANY_ORDER: &str = "verify_asan_link_order=0";

/// The variable's value.
#[derive(Debug)]
pub(crate) struct Preload {
    pub(crate) value: OsString,
    /// Why the library does not go by its own path, for people.
    pub(crate) note: Option<String>,
    /// Holds the link to the library if its own path can't be in the variable; removed with this value.
    _folder: Option<TempDir>,
}

impl Preload {
    /// The library behind those that the variable holds already: a profiler that defines MPI's functions has to be
    /// found before it, and a sanitizer's runtime before everything.
    pub(crate) fn new(library: &Path, others: Option<&OsStr>) -> io::Result<Self> {
        let (path, folder) = match is_separable(library) {
            true => link_to(library).map(|(path, folder)| (path, Some(folder)))?,
            false => (library.to_owned(), None),
        };
        let note = folder.as_ref().map(|_| {
            format!(
                "{} has a space or a colon, which LD_PRELOAD takes for its end: programs of this machine get the \
                 library by a link, those of others do not",
                library.display()
            )
        });
        let before = others.unwrap_or_default().as_bytes();
        let before = before.split(|byte| separates(*byte));
        // In a run within a run it is there.
        let before = before.filter(|word| !word.is_empty() && *word != path.as_os_str().as_bytes());
        let mut words: Vec<&[u8]> = before.collect();
        words.push(path.as_os_str().as_bytes());
        let value = OsString::from_vec(words.join(&b':'));
        Ok(Self { value, note, _folder: folder })
    }
}

/// Options of AddressSanitizer with which a program starts behind the library; none if somebody has decided about that.
pub(super) fn sanitizer_options(given: Option<&OsStr>) -> Option<OsString> {
    let given = given.unwrap_or_default();
    let decides = given.as_bytes().windows(22).any(|part| part == b"verify_asan_link_order");
    if decides {
        return None;
    }
    let mut options = given.to_owned();
    if !options.is_empty() {
        options.push(":");
    }
    options.push(ANY_ORDER);
    Some(options)
}

/// Whether the loader sees an end in a path.
fn is_separable(path: &Path) -> bool {
    path.as_os_str().as_bytes().iter().any(|byte| separates(*byte))
}

fn separates(byte: u8) -> bool {
    matches!(byte, b':' | b' ')
}

/// A link to the library in a new folder, whose path the loader takes as a whole.
fn link_to(library: &Path) -> io::Result<(PathBuf, TempDir)> {
    let own = std::env::temp_dir();
    let folders = [own.as_path()].into_iter().chain(FOLDERS.map(Path::new));
    let mut failed = io::Error::other("no folder for a link to it");
    for base in folders.filter(|base| !is_separable(base)) {
        match private_folder(base) {
            Ok(folder) => {
                let path = folder.path().join(library.file_name().unwrap_or_default());
                symlink(library, &path)?;
                return Ok((path, folder));
            }
            Err(error) => failed = error,
        }
    }
    Err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(library: &str, others: &str) -> String {
        let preload = Preload::new(Path::new(library), Some(OsStr::new(others))).unwrap();
        assert!(preload.note.is_none());
        preload.value.into_string().unwrap()
    }

    #[test]
    fn the_users_own_come_first() {
        assert_eq!(value("/lib/ours.so", ""), "/lib/ours.so");
        assert_eq!(value("/lib/ours.so", "tool.so"), "tool.so:/lib/ours.so");
        assert_eq!(value("/lib/ours.so", "a.so b.so:c.so "), "a.so:b.so:c.so:/lib/ours.so");
        assert_eq!(value("/lib/ours.so", "/lib/ours.so:tool.so"), "tool.so:/lib/ours.so", "once");
    }

    #[test]
    fn a_path_that_the_loader_would_split_goes_by_a_link() {
        let folder = tempfile::tempdir().unwrap();
        for name in ["my libraries", "a:b"] {
            let inside = folder.path().join(name);
            std::fs::create_dir(&inside).unwrap();
            let library = inside.join("ours.so");
            std::fs::write(&library, "library").unwrap();
            let preload = Preload::new(&library, Some(OsStr::new("tool.so"))).unwrap();
            let value = preload.value.clone().into_string().unwrap();
            let link = value.strip_prefix("tool.so:").unwrap();
            assert!(!link.contains([' ', ':']), "{value}");
            assert_eq!(std::fs::read(link).unwrap(), b"library");
            assert!(preload.note.as_ref().unwrap().contains(name));
            drop(preload);
            assert!(!Path::new(link).exists(), "nothing is left");
        }
    }

    #[test]
    fn a_sanitizer_starts_unless_somebody_decides_otherwise() {
        let options = |given: &str| sanitizer_options(Some(OsStr::new(given)));
        assert_eq!(options(""), Some("verify_asan_link_order=0".into()));
        assert_eq!(
            options("detect_leaks=0"),
            Some("detect_leaks=0:verify_asan_link_order=0".into())
        );
        assert_eq!(options("a=1:verify_asan_link_order=1"), None);
    }
}
