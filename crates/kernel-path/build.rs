//! Compiles the program for the kernel, where there is a clang, and for user space, for tests.

fn main() {
    tributary_ebpf::compile("node.c", "the kernel path");
    if std::env::var_os("CARGO_FEATURE_USER_SPACE").is_some() {
        cc::Build::new()
            .file("ebpf/user.c")
            .include(tributary_ebpf::include())
            .opt_level(2)
            .flag_if_supported("-Wno-unknown-pragmas")
            .compile("kernel_path_user");
    }
}
