# What the lab (`tributary lab`, docs/lab.md) needs of the system: ip and tc, of iproute2, and nft,
# of nftables. They are Debian's names; other distributions have the same.

LAB_TOOLS := ip tc nft
LAB_PACKAGES := iproute2 nftables
# Where such tools are, though not on every user's PATH.
LAB_PATH := $(PATH):/usr/sbin:/sbin

.PHONY: lab-tools
lab-tools: ## What the lab needs: ip, tc, nft (installs them if root on Debian)
	@missing=; for tool in $(LAB_TOOLS); do \
		PATH="$(LAB_PATH)" command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	test -z "$$missing" && exit 0; \
	if test "$$(id -u)" = 0 && command -v apt-get >/dev/null; then \
		apt-get install -y -qq --no-install-recommends $(LAB_PACKAGES) >/dev/null || \
		{ apt-get update -qq && \
		apt-get install -y -qq --no-install-recommends $(LAB_PACKAGES) >/dev/null; }; \
	else \
		echo "the lab needs$$missing: install the packages $(LAB_PACKAGES) as root" >&2; exit 1; \
	fi

.PHONY: test-lab bench-lab soak-lab
test-lab: build mpi-venvs lab-tools ## MPI programs on hosts of a lab, under both MPIs, and a short soak
	$(PYTHON) tests/lab/test.py --tributary $(PROGRAM)
	$(PYTHON) tests/lab/soak.py --tributary $(PROGRAM) --seconds 15

bench-lab: build mpi-venvs lab-tools ## Collectives over a lab beside plain Open MPI and MPICH
	$(PYTHON) tests/lab/bench.py --tributary $(PROGRAM)

soak-lab: build mpi-venvs lab-tools ## Five million mixed operations over a lossy lab, or an hour
	$(PYTHON) tests/lab/soak.py --tributary $(PROGRAM)
