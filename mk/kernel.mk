# What the kernel path needs: a compiler for eBPF. Without one the crates build, and the program says
# that the kernel path was not built.

.PHONY: kernel-tools test-kernel test-kernel-memory

kernel-tools:
	$(call system_tools,the kernel path,clang,clang)

test-kernel: kernel-tools ## Compare the kernel path with the process: 10^8 sums of each float type, 30,000 groups
	TRIBUTARY_ARITHMETIC_PAIRS=100000000 TRIBUTARY_DIFFERENTIAL_RUNS=30000 \
		$(CARGO) test --release --locked -p tributary-kernel-path -- --nocapture

# What Rust's own sanitizers need is a nightly compiler; these two need none.
test-kernel-memory: kernel-tools ## Feed any packets to the kernel path's program under Valgrind, with undefined behaviour trapped
	CFLAGS="-fsanitize=undefined -fsanitize-undefined-trap-on-error" TRIBUTARY_FUZZ_RUNS=500 \
		$(CARGO) test --locked --target-dir $(CARGO_TARGET_DIR)/trapping \
		--config 'target."cfg(all())".runner = ["valgrind", "-q", "--error-exitcode=1"]' \
		-p tributary-kernel-path --test fuzz_smoke -- --nocapture
