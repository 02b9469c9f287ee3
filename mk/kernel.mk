# What the kernel path needs: a compiler for eBPF. Without one the crates build, and the program says
# that the kernel path was not built.

.PHONY: kernel-tools kernel-machine-tools test-kernel test-kernel-memory test-kernels test-rings

kernel-tools:
	$(call system_tools,the kernel path,clang,clang)

kernel-machine-tools:
	$(call system_tools,the test on other kernels,qemu-system-x86_64 busybox strip,qemu-system-x86 busybox-static binutils)

test-kernel: kernel-tools ## Compare the kernel path with the process: 10^8 sums of each float type, 30,000 groups
	TRIBUTARY_ARITHMETIC_PAIRS=100000000 TRIBUTARY_DIFFERENTIAL_RUNS=30000 \
		$(CARGO) test --release --locked -p tributary-kernel-path -- --nocapture

# The C source only: the sanitizers of Rust need a nightly compiler.
test-kernel-memory: kernel-tools ## Feed any packets to the kernel path's program, with its memory and its arithmetic watched
	CFLAGS="-fsanitize=address,undefined -fsanitize-undefined-trap-on-error" \
		RUSTFLAGS="-Clink-arg=-lasan" ASAN_OPTIONS=detect_leaks=0 \
		$(CARGO) test --locked --target-dir $(CARGO_TARGET_DIR)/sanitized \
		--config 'target."cfg(all())".runner = ["env", "LD_PRELOAD=$(shell $(CC) -print-file-name=libasan.so)"]' \
		-p tributary-kernel-path --test fuzz_smoke -- --nocapture

test-kernels: kernel-tools kernel-machine-tools ## Boot kernels of Debian, and compare the kernel path with user space on each
	CARGO="$(CARGO)" $(PYTHON) tests/kernels/kernel_path.py

test-rings: kernel-tools kernel-machine-tools ## Boot the same, and take datagrams past the network stack of virtio adapters, VLANs and bonds
	CARGO="$(CARGO)" $(PYTHON) tests/kernels/rings.py
