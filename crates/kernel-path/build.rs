//! Compiles the program for the kernel, where there is a clang, and for user space, for tests.

use std::env;
use std::path::Path;
use std::process::Command;

const SOURCE: &str = "ebpf/node.c";

fn main() {
    println!("cargo:rerun-if-changed=ebpf");
    println!("cargo:rerun-if-env-changed=CLANG");
    println!("cargo:rustc-check-cfg=cfg(program_built)");
    let out = env::var("OUT_DIR").expect("cargo names a folder for what is built");
    if compile_for_kernel(&Path::new(&out).join("node.o")) {
        println!("cargo:rustc-cfg=program_built");
    }
    if env::var_os("CARGO_FEATURE_USER_SPACE").is_some() {
        cc::Build::new()
            .file("ebpf/user.c")
            .opt_level(2)
            .flag_if_supported("-Wno-unknown-pragmas")
            .compile("kernel_path_user");
    }
}

/// False, with a note, if there is no clang. An error of clang ends the build.
fn compile_for_kernel(object: &Path) -> bool {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".to_owned());
    let target = env::var("CARGO_CFG_TARGET_ARCH").expect("cargo names the target");
    let compiled = Command::new(&clang)
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-Wextra", "-Werror"])
        .arg(format!("-DTARGET_{target}"))
        .args(["-c", SOURCE, "-o"])
        .arg(object)
        .status();
    match compiled {
        Ok(status) => {
            assert!(status.success(), "{clang} can't compile {SOURCE}");
            true
        }
        Err(error) => {
            println!("cargo:warning=the kernel path is not built: {clang}: {error}");
            // A file that is never there: the next build looks for a clang again.
            println!("cargo:rerun-if-changed=no-clang");
            false
        }
    }
}
