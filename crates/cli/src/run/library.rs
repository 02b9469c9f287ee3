//! Finds the preload library.

use std::env;
use std::path::{Path, PathBuf};

use tributary_client::knobs;

use crate::usage::UsageError;

const FILE_NAME: &str = "libtributary.so";

/// Where packages have the library, from the program's folder.
const PACKAGED: &str = "../lib/tributary";

/// The preload library: in the folder that `TRIBUTARY_LIBRARY_PATH` names, else beside this program or where
/// packages have it.
pub(crate) fn find() -> Result<PathBuf, UsageError> {
    let named = env::var_os(knobs::LIBRARY_PATH.name).filter(|folder| !folder.is_empty());
    let own = env::current_exe().ok().and_then(|program| program.parent().map(Path::to_owned));
    let folders: Vec<PathBuf> = match (named, own) {
        (Some(folder), _) => vec![folder.into()],
        (None, Some(own)) => vec![own.clone(), own.join(PACKAGED)],
        (None, None) => Vec::new(),
    };
    let candidates = folders.iter().map(|folder| folder.join(FILE_NAME));
    let found = candidates.clone().find(|candidate| candidate.is_file());
    found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
        let searched: Vec<String> =
            folders.iter().map(|folder| folder.display().to_string()).collect();
        let allowed = match folders.is_empty() {
            true => format!(
                "without /proc this program does not know its own folder: name the one that holds {FILE_NAME}"
            ),
            false => format!("a folder that holds {FILE_NAME} is needed; `make build` makes it"),
        };
        UsageError::new(knobs::LIBRARY_PATH.name, searched.join(":"), allowed)
    })
}
