//! Compiles the program for the kernel, where there is a clang.

fn main() {
    tributary_ebpf::compile("steer.c", "AF_XDP");
}
