//! Compiles the programs for the kernel, where there is a clang.

fn main() {
    tributary_ebpf::compile("steer.c", "AF_XDP");
    tributary_ebpf::compile("deliver.c", "delivery into rings");
}
