//! Compiling a program, in a build script.

use std::env;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Where the headers lie that programs share.
#[must_use]
pub fn include() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("include")
}

/// Compiles a program in the build script of its crate: `SOURCE` of the folder `ebpf` to an object of that name in the
/// crate's `OUT_DIR`, by `clang` or what `CLANG` names. With it the crate has `cfg(program_built)`. Without a clang a
/// warning says that `what` is not built.
///
/// # Panics
/// If clang can't compile the source, or this is no build script.
#[allow(clippy::print_stdout, reason = "a build script speaks to cargo")]
pub fn compile(source: &str, what: &str) {
    println!("cargo:rerun-if-changed=ebpf");
    println!("cargo:rerun-if-changed={}", include().display());
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rustc-check-cfg=cfg(program_built)");
    let source = Path::new("ebpf").join(source);
    let out = env::var("OUT_DIR").expect("cargo names a folder for what is built");
    let name = source.file_name().expect("a source has a name");
    let object = Path::new(&out).join(name).with_extension("o");
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo names the target");
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-DTARGET_{target}"))
        .arg("-I")
        .arg(include())
        .arg("-c")
        .arg(&source)
        .arg("-o")
        .arg(&object)
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "{clang} can't compile {}", source.display());
            println!("cargo:rustc-cfg=program_built");
        }
        Err(error) => {
            println!("cargo:warning={what} is not built: {clang}: {error}");
            // A file that is never there: the next build looks for a clang again.
            println!("cargo:rerun-if-changed=no-clang");
        }
    }
}
