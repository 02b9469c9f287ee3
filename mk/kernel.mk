# What the kernel path needs: a compiler for eBPF. Without one the crates build, and the program says
# that the kernel path was not built.

.PHONY: kernel-tools test-kernel

kernel-tools:
	$(call system_tools,the kernel path,clang,clang)

test-kernel: kernel-tools ## Compare the kernel path with the process: 10^8 sums of each float type, 30,000 groups
	TRIBUTARY_ARITHMETIC_PAIRS=100000000 TRIBUTARY_DIFFERENTIAL_RUNS=30000 \
		$(CARGO) test --release --locked -p tributary-kernel-path -- --nocapture
