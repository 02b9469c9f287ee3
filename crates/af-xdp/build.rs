//! Compiles the program for the kernel, where there is a clang.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "ebpf/steer.c";

fn main() {
    println!("cargo:rerun-if-changed=ebpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rustc-check-cfg=cfg(program_built)");
    let out = env::var("OUT_DIR").expect("cargo names a folder for what is built");
    if compile(&Path::new(&out).join("steer.o")) {
        println!("cargo:rustc-cfg=program_built");
    }
}

/// False, with a note, if there is no clang. An error of clang ends the build.
fn compile(object: &Path) -> bool {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .args(["-c", SOURCE, "-o"])
        .arg(object)
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "{clang} can't compile {SOURCE}");
            true
        }
        Err(error) => {
            println!("cargo:warning=AF_XDP is not built: {clang}: {error}");
            // A file that is never there: the next build looks for a clang again.
            println!("cargo:rerun-if-changed=no-clang");
            false
        }
    }
}
