# What runs the tests that are written in Python, and how. `tests/harness` is what they share.

PYTEST_VERSION := 9.2.0
VENV_tests := .venv/tests
TESTS_STAMP := .venv/tests-$(PYTEST_VERSION).stamp
# A line for each test, with what it found. `make ... PYTESTFLAGS="-k WORD"` selects tests.
PYTESTFLAGS ?=
PYTEST = $(VENV_tests)/bin/python -m pytest -v --tributary $(PROGRAM) $(PYTESTFLAGS)
# What `make test` runs of tests that take long.
SHORT := -m "short and not long"

.venv/tests.stamp: $(TESTS_STAMP)
	@cp $< $@
$(TESTS_STAMP):
	rm -rf $(VENV_tests) .venv/tests-*.stamp
	$(PYTHON) -m venv $(VENV_tests)
	$(VENV_tests)/bin/python -m pip install --quiet --disable-pip-version-check pytest==$(PYTEST_VERSION)
	@touch $@
