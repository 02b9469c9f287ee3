#!/usr/bin/env python3
"""Compares what `tributary sim advise` predicts for a program with what a tree brings it, on a lab.

Runs conjugate.c, or the words after `--`, on the lab's hosts without a tree, traced; asks for advice; runs it
without and with a tree in turns, not traced; prints the predicted gain and the measured one.
"""

import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness.bench_labs import OPEN_MPI, finish, start, waiting  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_c  # noqa: E402
from harness.labs import Lab  # noqa: E402
from harness.places import mpicc, mpirun, parser_of  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
WITHOUT = {"TRIBUTARY_OFFLOAD": "off"}


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--advisor", type=pathlib.Path,
                        help="the program that advises (default: that of --tributary)")
    parser.add_argument("--hosts", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind")
    parser.add_argument("--points", type=int, default=2000)
    parser.add_argument("--iterations", type=int, default=2000)
    parser.add_argument("--preset", default="lab")
    parser.add_argument("--config", type=pathlib.Path, help="a preset file instead")
    parser.add_argument("--timeout", type=float, default=300)
    parser.add_argument("words", nargs="*", help="a program of your own")
    return parser.parse_args()


def compiled(arguments):
    target = compile_c(mpicc(arguments, "openmpi"), [HERE / "conjugate.c"], arguments.build / "conjugate", "-lm")
    return [target, arguments.points, arguments.iterations]


def seconds(arguments, lab, program, environment):
    """How long the iterations took, or all of a program that does not say it."""
    words = lab.words("run", "--", mpirun(arguments, "openmpi"), "-n", arguments.hosts, *program)
    began = time.monotonic()
    running = start(words, {**waiting(arguments.hosts), **OPEN_MPI, **environment})
    (stdout, _), = finish("the program", [running], arguments.timeout)
    took = time.monotonic() - began
    told = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
    return told[0]["seconds"] if told else took


def advice(arguments, trace):
    cluster = ["--config", arguments.config] if arguments.config else ["--preset", arguments.preset]
    words = [arguments.advisor or arguments.tributary, "sim", "advise", "--trace", trace, *cluster]
    for more in ([], ["--json"]):
        done = subprocess.run([str(word) for word in words + more], check=True, text=True,
                              capture_output=True)
        if not more:
            print(done.stdout)
    return json.loads(done.stdout)


def main():
    arguments = parse_arguments()
    program = arguments.words or compiled(arguments)
    arguments.build.mkdir(parents=True, exist_ok=True)
    trace = arguments.build.resolve() / "advice.trace"
    name = f"advice-{os.getpid()}"
    with Lab(arguments.tributary, name, "--hosts", arguments.hosts, "--hosts-per-leaf", arguments.hosts) as lab:
        seconds(arguments, lab, program, {**WITHOUT, "TRIBUTARY_TRACE": str(trace)})
        predicted = advice(arguments, trace)
        without, within = [], []
        for _ in range(arguments.rounds):
            without.append(seconds(arguments, lab, program, WITHOUT))
            within.append(seconds(arguments, lab, program, {"TRIBUTARY_BETWEEN_HOSTS": "tree"}))
    measured = [one / other for one, other in zip(without, within)]
    best = max((place for place in predicted["placements"] if not place["refused"]),
               key=lambda place: place["gain"])
    print(f"without a tree {statistics.median(without):.3f} s, with it {statistics.median(within):.3f} s "
          f"(medians of {arguments.rounds})")
    print(f"gain: predicted {best['gain']:.3f} ({best['gain_low']:.3f} to {best['gain_high']:.3f}), measured "
          f"{statistics.median(measured):.3f} ({min(measured):.3f} to {max(measured):.3f})")


if __name__ == "__main__":
    sys.exit(main())
