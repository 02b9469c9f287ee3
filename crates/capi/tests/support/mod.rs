//! Programs in C that are compiled against the header, and run against the library that is tested.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A program of `tests/client`, which goes with this value.
pub(crate) struct Program {
    folder: TempDir,
}

impl Program {
    /// Compiles the sources and links them with the library.
    pub(crate) fn compile(sources: &[&str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let libraries = libraries();
        let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
        let compiled = Command::new(compiler)
            .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-I"])
            .arg(root.join("include"))
            .args(sources.iter().map(|name| root.join("tests/client").join(name)))
            .arg("-L")
            .arg(&libraries)
            .arg(format!("-Wl,-rpath,{}", folder.path().display()))
            .args(["-lsharp_coll", "-lpthread", "-o"])
            .arg(folder.path().join("program"))
            .output()
            .unwrap();
        let messages = String::from_utf8_lossy(&compiled.stderr);
        assert!(compiled.status.success(), "{messages}");
        // Under the name that the program looks for.
        let library = libraries.join("libsharp_coll.so");
        std::os::unix::fs::symlink(library, folder.path().join("libsharp_coll.so.0")).unwrap();
        Self { folder }
    }

    /// Runs it, without knobs of the surroundings.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(self.folder.path().join("program"));
        for (name, _) in std::env::vars_os() {
            let name_text = name.to_string_lossy();
            if name_text.starts_with("TRIBUTARY_") || name_text.starts_with("SHARP_") {
                command.env_remove(&name);
            }
        }
        command
    }
}

/// Where cargo puts the library: above the folder of this test.
fn libraries() -> PathBuf {
    let program = std::env::current_exe().unwrap();
    program.parent().unwrap().to_owned()
}
