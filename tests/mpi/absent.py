#!/usr/bin/env python3
"""Runs MPI programs of which one rank does not have the library, as on a host that lacks the file.

The program must end with right results, by the MPI alone, and one line must say which rank it is.
"""

import re
import sys

import run

RANKS = 3
ABSENT = 1
LINE = re.compile(r"tributary: 1 of 3 ranks do not have this library \(rank 1\)")


def words_of(options, place):
    """The command: ranks that are all of one program, of which one starts without the library."""
    words = [options.tributary, "run", "--", place["mpirun"]]
    for rank in range(RANKS):
        words += [":"] if rank > 0 else []
        words += ["-n", "1"]
        words += ["env", "-u", "LD_PRELOAD"] if rank == ABSENT else []
        words += [place["folder"] / "bcast_types"]
    return words


def check(options, place):
    """What is wrong with a run, or nothing."""
    environment = run.mpi_launch.environment()
    output = run.run_checked(run.Program("bcast_types"), words_of(options, place), environment,
                             options.timeout)
    said = LINE.findall(output)
    if len(said) != 1:
        raise run.Failure(f"{len(said)} lines say who lacks the library", output)


def main():
    options = run.parse_arguments()
    options.tributary = options.tributary.absolute()
    failures = 0
    for mpi in run.MPIS if options.mpi == "all" else (options.mpi,):
        place = run.prepare(options, mpi, [run.Program("bcast_types")])
        try:
            check(options, place)
            verdict = "ok"
        except run.Failure as failure:
            verdict = f"FAILED: {failure}\n{failure.output}"
            failures += 1
        print(f"{mpi:8} absent: rank {ABSENT} of {RANKS}  {verdict}", flush=True)
    print(f"absent: {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
