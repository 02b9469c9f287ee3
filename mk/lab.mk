# The lab (`tributary lab`, docs/lab.md): ip and tc, of iproute2, and nft, of nftables.

.PHONY: lab-tools
lab-tools: ## What the lab needs: ip, tc, nft (installs them if root on Debian)
	$(call system_tools,the lab,ip tc nft,iproute2 nftables)

.PHONY: test-lab bench-lab soak-lab
test-lab: build mpi-venvs lab-tools ## MPI programs on hosts of a lab, under both MPIs
	$(PYTHON) tests/lab/test.py --tributary $(PROGRAM)

bench-lab: build mpi-venvs lab-tools ## Collectives over a lab beside plain Open MPI and MPICH
	$(PYTHON) tests/lab/bench.py --tributary $(PROGRAM)

soak-lab: build mpi-venvs lab-tools ## Five million mixed operations over a lossy lab, or an hour
	$(PYTHON) tests/lab/soak.py --tributary $(PROGRAM)
