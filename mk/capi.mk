# libsharp_coll (docs/sharp.md), and where clients look for it.
#
# The Makefile includes this file; it works alone too: `make -f mk/capi.mk capi`.

include mk/cargo.mk
include mk/tools.mk

PREFIX ?= /usr/local
CAPI_DIR := crates/capi
CAPI_LIBRARY := $(RELEASE_DIR)/libsharp_coll.so
# As in crates/capi/build.rs, version.h and Cargo.toml.
CAPI_SONAME := libsharp_coll.so.0
CAPI_VERSION := 3.7.0

EXACT_DIR := crates/exact-c
EXACT_LIBRARY := $(RELEASE_DIR)/libtributary_exact_c.so

.PHONY: capi exact install test-install
capi: ## Build libsharp_coll, the library for clients of SHARP, in release mode
	$(CARGO_RELEASE) -p tributary-capi

exact: ## Build libtributary_exact_c, exact sums for C and Fortran, in release mode
	$(CARGO_RELEASE) -p tributary-exact-c

# A `lib` folder and no other: clients look for the library in `lib` or `lib64` and link from `lib`.
install: capi exact ## Install libsharp_coll and libtributary_exact_c, their headers and sharp.pc into PREFIX (default /usr/local)
	install -d $(DESTDIR)$(PREFIX)/lib/pkgconfig $(DESTDIR)$(PREFIX)/include/sharp/api
	install -m 644 $(CAPI_DIR)/include/sharp/api/*.h $(DESTDIR)$(PREFIX)/include/sharp/api
	install -m 755 $(CAPI_LIBRARY) $(DESTDIR)$(PREFIX)/lib/$(CAPI_SONAME)
	install -m 644 $(EXACT_DIR)/include/tributary_exact.h $(EXACT_DIR)/fortran/tributary_exact.f90 \
		$(DESTDIR)$(PREFIX)/include
	install -m 755 $(EXACT_LIBRARY) $(DESTDIR)$(PREFIX)/lib
	ln -sf $(CAPI_SONAME) $(DESTDIR)$(PREFIX)/lib/libsharp_coll.so
	sed -e 's|@PREFIX@|$(PREFIX)|' -e 's|@VERSION@|$(CAPI_VERSION)|' $(CAPI_DIR)/sharp.pc.in \
		>$(DESTDIR)$(PREFIX)/lib/pkgconfig/sharp.pc

test-install: build ## Install libsharp_coll into a new folder, and build and run a client against that
	$(call system_tools,a test of what is installed,pkg-config readelf,pkg-config binutils)
	$(PYTHON) tests/sharp/install.py --tributary $(PROGRAM)
