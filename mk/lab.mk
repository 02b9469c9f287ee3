# The lab (`tributary lab`, docs/lab.md). It needs ip and tc of iproute2, nft of nftables, and jq for the upgrade script.

.PHONY: lab-tools
lab-tools: ## Find ip, tc, nft and jq, which the lab and its tests need (as root on Debian: install them)
	$(call system_tools,the lab,ip tc nft jq,iproute2 nftables jq)

.PHONY: launchers-tools
launchers-tools: ## Find sshd and Slurm's daemons, by which labs start jobs as clusters do (as root on Debian: install them)
	$(call system_tools,launchers,sshd slurmctld slurmd srun,openssh-server slurmctld slurmd slurm-client slurm-wlm-basic-plugins libpmix2)

.PHONY: test-lab test-lab-short bench-lab soak-lab
# The soak: direct links that stand by outlive probes without an answer, and rings that are late. With 4 probes a link ended
# within seconds; by a late ring in half of the runs.
test-lab: build exact mpi-venvs mpi-debian lab-tools launchers-tools python-package $(TESTS_STAMP) ## Run MPI programs on hosts of a lab, under both MPIs
	$(PYTEST) tests/lab --python $(VENV_python)/bin/python
	$(PYTHON) tests/lab/nemesis.py --tributary $(PROGRAM) --seconds 40
	$(PYTHON) tests/lab/soak.py --tributary $(PROGRAM) --loss 2 --between-hosts tree --kill-every 8 --seconds 40
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --path lossy-tree4 --path lossy-direct2 --path lossy-replicated4 --path lossy-network4 --kind right --programs 12 --batch 4
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --path lossy-tree4 --path lossy-direct2 --path lossy-replicated4 --path lossy-network4 --kind wrong --programs 12 --batch 4
	$(PYTHON) tests/lab/upgrade.py --tributary $(PROGRAM)
	$(PYTHON) tests/lab/kills.py --tributary $(PROGRAM) --jobs 15
	$(PYTHON) tests/lab/flood.py --tributary $(PROGRAM) --rounds 1

test-lab-short: build mpi-venvs lab-tools $(TESTS_STAMP) ## Run the tests on labs that matter most
	$(PYTEST) tests/lab $(SHORT)
	$(PYTHON) tests/mpi/fuzz.py --tributary $(PROGRAM) --mpi mpich --path lossy-tree4 --path lossy-direct2 --path lossy-replicated4 --path lossy-network4 --kind right --kind wrong --programs 12 --batch 4

# Writes JSON and a plot to build/bench/, and tables to docs/evidence/benchmarks-lab.md. One table alone:
# bench/lab/bench.py --cases none --also TABLE.
bench-lab: build mpi-venvs lab-tools .venv/plot.stamp ## Time collectives over a lab, beside plain Open MPI and MPICH
	$(PYTHON) bench/lab/bench.py --tributary $(PROGRAM) --also all --output build/bench/lab.json
	$(VENV_plot)/bin/python bench/plot.py build/bench/lab.json build/bench/allreduce.png
	$(PYTHON) bench/tables.py build/bench/lab.json docs/evidence/benchmarks-lab.md

MATPLOTLIB_VERSION := 3.10.7
VENV_plot := .venv/plot
.venv/plot.stamp: .venv/plot-$(MATPLOTLIB_VERSION).stamp
	@cp $< $@
.venv/plot-$(MATPLOTLIB_VERSION).stamp:
	rm -rf $(VENV_plot) .venv/plot*.stamp
	$(PYTHON) -m venv $(VENV_plot)
	$(VENV_plot)/bin/python -m pip install --quiet --disable-pip-version-check matplotlib==$(MATPLOTLIB_VERSION)
	@echo matplotlib $(MATPLOTLIB_VERSION) > $@

soak-lab: build mpi-venvs lab-tools ## Run five million mixed operations over a lossy lab, for an hour at most
	$(PYTHON) tests/lab/soak.py --tributary $(PROGRAM) --between-hosts tree --depth 32
