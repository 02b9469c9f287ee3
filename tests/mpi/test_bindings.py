"""Runs the programs of bindings/ under every MPI, and compares the table of what was seen with that of the documentation.

With --write-bindings the table is written there.
"""

import bindings
import pytest
from harness.places import ROOT
from harness.plugin import skip_unless_ci

ROWS = {}


@pytest.mark.parametrize("kind", bindings.MPIS)
def test_every_binding_has_the_results_of_the_plain_mpi(kind, options, tell):
    """With CI=true nothing may be missing."""
    try:
        mpi = bindings.MPIS[kind](options)
    except bindings.Missing as missing:
        skip_unless_ci(str(missing))
    rows = []
    for binding, make in bindings.bindings_of(options, mpi):
        if isinstance(make, str):
            rows.append((mpi.name, binding, "", "", "", f"not tried: {make}", ""))
        else:
            rows += bindings.rows_of(options, mpi, binding, make())
    ROWS[kind] = rows
    tell(f"{len(rows)} rows")


def test_the_table_is_that_of_the_documentation(request):
    """Of all MPIs; behind the tests that make its rows."""
    if ROWS.keys() != bindings.MPIS.keys():
        pytest.skip("not every MPI was tried")
    before, rest = bindings.DOCS.read_text().split(bindings.BEGIN)
    old, after = rest.split(bindings.END)
    new = bindings.table([row for kind in bindings.MPIS for row in ROWS[kind]])
    if request.config.getoption("--write-bindings"):
        bindings.DOCS.write_text(before + bindings.BEGIN + new + bindings.END + after)
        return
    assert old == new, f"{bindings.DOCS.relative_to(ROOT)} has another table (--write-bindings writes it)"
