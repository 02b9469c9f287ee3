//! Names the shared library, and keeps it loaded: a thread of it may run for as long as the process does.

fn main() {
    // Not the number under which binaries look that were built with another header: see `version.h`.
    println!("cargo::rustc-cdylib-link-arg=-Wl,-soname,libsharp_coll.so.0");
    println!("cargo::rustc-cdylib-link-arg=-Wl,-z,nodelete");
    println!("cargo::rerun-if-changed=build.rs");
}
