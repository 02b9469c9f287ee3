"""Runs torch's own tests of torch.distributed, those of the wheel that is installed, over Gloo and over this backend.

What Gloo passes has to pass here, but for what EXCLUDED names. In the run of ours, this backend has the name "gloo":
many tests ask for that name before they try what Gloo carries. Ranks are forked from one process, which has imported
torch once: torch's own way, a fresh process for each rank of each test, takes most of its time to import.

    python tests/torch/conformance.py [--only NAME] [--ranks 3]
"""

import argparse
import json
import os
import subprocess
import sys
import time
import unittest

# Tests that Gloo passes and this backend need not, and why.
EXCLUDED = {
    "test_ddp_logging_data_cpu":
        "DDP's logger has entries for the settings of Gloo's network (gloo_socket_ifname) where Gloo's class is at work",
}

# In a run of its own: over which backend.
OVER = "CONFORMANCE_OVER"
# Longer than any test takes, and than torch's own limit for one.
LIMIT_S = 3600


def suite_of(only):
    """The tests, for this process's backend."""
    import torch
    from torch.testing._internal.distributed import distributed_test

    if os.environ[OVER] == "tributary":
        import torch.distributed as dist

        from tributary.torch import TributaryBackend, create

        TributaryBackend.name = lambda backend: "gloo"
        dist.Backend._plugins["GLOO"] = dist.Backend._BackendPlugin(create, True)
        # DDP's logger takes what has Gloo's type for Gloo's class in C++.
        dist.Backend.backend_type_map["gloo"] = dist.ProcessGroup.BackendType.CUSTOM
        # Not compared: the events of torch's profiler. Gloo's begin and end in C++, on different threads; a class in
        # Python can only show its own ranges, which tests/torch/test_groups.py looks at.
        distributed_test.PROFILING_SUPPORTED_BACKENDS = []
        distributed_test.SEND_RECV_PROFILING_SUPPORTED_BACKENDS = []

    class Conformance(distributed_test.TestDistBackend, distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    classes = [Conformance, *beside_rpc()]
    tests = [test for each in classes for test in unittest.defaultTestLoader.loadTestsFromTestCase(each)]
    return unittest.TestSuite(test for test in tests if only is None or only in test.id())


def beside_rpc():
    """DDP beside torch's RPC: what else the wheel has of tests that make a group. (It brings the base classes of those
    of FSDP, DTensor, pipelines and checkpoints, without a test.)"""
    import torch
    from torch.testing._internal.distributed import ddp_under_dist_autograd_test as of_torch
    from torch.testing._internal.distributed.rpc.tensorpipe_rpc_agent_test_fixture import (
        TensorPipeRpcAgentTestFixture)
    from torch.testing._internal.distributed.rpc_utils import SpawnHelper

    class Forked(SpawnHelper):
        def _spawn_processes(self):
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return [type(each.__name__, (each, TensorPipeRpcAgentTestFixture, Forked), {})
            for each in (of_torch.DdpUnderDistAutogradTest, of_torch.DdpComparisonTest)]


class Outcomes(unittest.TestResult):
    """Each test's outcome and time."""

    def __init__(self):
        super().__init__()
        self.outcomes = {}

    def startTest(self, test):
        super().startTest(test)
        self._began_at = time.monotonic()

    def addSuccess(self, test):
        self._note(test, "passed", "")

    def addSkip(self, test, reason):
        self._note(test, "skipped", reason)

    def addFailure(self, test, error):
        self._note(test, "failed", self._exc_info_to_string(error, test))

    addError = addFailure

    def _note(self, test, outcome, text):
        name, took_s = test.id().split(".")[-1], time.monotonic() - self._began_at
        self.outcomes[name] = {"outcome": outcome, "text": text}
        print(f"{os.environ[OVER]}: {name} {outcome}, {took_s:.1f} s", file=sys.stderr, flush=True)


def run_here(only, path):
    """Runs the tests over one backend, and leaves their outcomes in a file."""
    result = Outcomes()
    suite_of(only).run(result)
    with open(path, "w") as file:
        json.dump(result.outcomes, file)


def run_over(backend, options, path):
    """The outcomes of the tests over a backend, from a process of its own."""
    environment = os.environ | {OVER: backend, "BACKEND": "gloo", "WORLD_SIZE": str(options.ranks),
                                "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    command = [sys.executable, os.path.abspath(__file__), "--here", path]
    if options.only:
        command += ["--only", options.only]
    began_at = time.monotonic()
    with open(f"{path}.log", "w") as log:
        done = subprocess.run(command, env=environment, stderr=log, stdout=subprocess.DEVNULL, timeout=LIMIT_S)
    if done.returncode != 0:
        sys.exit(f"conformance: the run over {backend} ended with {done.returncode}; see {path}.log")
    with open(path) as file:
        outcomes = json.load(file)
    counts = [sum(each["outcome"] == kind for each in outcomes.values()) for kind in ("passed", "failed", "skipped")]
    print("{}: {} passed, {} failed, {} skipped themselves, in {:.0f} s".format(
        backend, *counts, time.monotonic() - began_at), flush=True)
    return outcomes


def last_error(text):
    """The last lines of a rank's traceback that say what it is about."""
    about = [line for line in text.splitlines() if "Error" in line or "exited with" in line]
    return "\n".join(f"  {line[:400]}" for line in about[-4:] or text.splitlines()[-4:])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", help="a part of the names of tests to run")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--out", default="build/conformance", help="where outcomes and logs are left")
    parser.add_argument("--here", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        return run_here(options.only, options.here)
    os.makedirs(options.out, exist_ok=True)
    over = {backend: run_over(backend, options, os.path.join(options.out, backend + ".json"))
            for backend in ("gloo", "tributary")}
    missing = [name for name, each in over["gloo"].items()
               if each["outcome"] == "passed" and over["tributary"].get(name, {}).get("outcome") != "passed"]
    for name in missing:
        reason = EXCLUDED.get(name)
        text = over["tributary"].get(name, {}).get("text", "it was not run")
        failed = f"Gloo passes, tributary does not\n{last_error(text)}"
        print(f"{name}: {f'excluded: {reason}' if reason else failed}")
    needless = [name for name in EXCLUDED if name in over["tributary"] and name not in missing]
    for name in needless:
        print(f"{name}: is excluded, and passes: take it off the list")
    return 1 if needless or set(missing) - set(EXCLUDED) else 0


if __name__ == "__main__":
    sys.exit(main())
