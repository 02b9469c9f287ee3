"""Labs for benchmarks, and the methods that run on them: plain MPIs, and Tributary with each MPI."""

import json
import os
import statistics
import subprocess
import sys
import time

from .compiling import compile_c
from .labs import Lab
from .places import ROOT, mpicc, mpirun

# Each method: MPI, whether it is plain, and variables beside those of the lab. Plain MPIs are tuned: TCP
# alone between hosts, and yielding if there are more ranks than cores.
OPEN_MPI = {"OMPI_MCA_pml": "ob1", "OMPI_MCA_btl": "tcp,self"}
MPICH_UCX = {"MPIR_CVAR_CH4_NETMOD": "ucx", "UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "eth0"}
MPICH_OFI = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
TCP = {"TRIBUTARY_CHANNEL": "tcp"}
# Lengths that are left to the underlying MPI are measured too, to see that they should be.
ALL_LENGTHS = {"TRIBUTARY_OFFLOAD_MAX": "between_reduce_scatter:always,between_allgather:always,between_scan:always"}
METHODS = {
    "openmpi": ("openmpi", True, OPEN_MPI),
    "mpich-ucx": ("mpich", True, MPICH_UCX),
    "mpich-ofi": ("mpich", True, MPICH_OFI),
    "tributary-openmpi": ("openmpi", False, OPEN_MPI),
    "tributary-mpich": ("mpich", False, MPICH_UCX),
    "tcp-openmpi": ("openmpi", False, {**OPEN_MPI, **TCP}),
    "tcp-mpich": ("mpich", False, {**MPICH_UCX, **TCP}),
    **{f"{between}-mpich": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": between})
       for between in ("direct", "replicated", "tree")},
    # On a lab with --rings.
    "ring-mpich": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_RECEIVE": "ring"}),
    "multicast-mpich": ("mpich", False, {**MPICH_UCX, "TRIBUTARY_BETWEEN_HOSTS": "replicated", "TRIBUTARY_MULTICAST": "on"}),
}
# What a run without --methods compares.
USUAL_METHODS = list(METHODS)[:7]

# Measurements of one case, one after the other, in each of several jobs at once.
GROUPS_CASES = 9


def waiting(processes, cores_per_host=None):
    """Knobs of waiting: unless hosts have cores of their own, they share this machine's, which no host can see."""
    is_crowded = cores_per_host is None and processes > os.cpu_count()
    return {"OMPI_MCA_mpi_yield_when_idle": "1" if is_crowded else "0",
            "TRIBUTARY_WAIT": "sleep" if is_crowded else "spin"}


def case_of(line):
    """The case that a line of figures is of."""
    pattern = ":apart" if line.get("is_apart") else ""
    return f"{line['operation']}:{line['bytes']}{pattern}"


def compile_program(mpi, arguments):
    """Compiles bench.c, which times collectives one by one, for an MPI."""
    return compile_c(mpicc(arguments, mpi), [ROOT / "tests/lab/bench.c"], arguments.build / f"bench-{mpi}")


def finish(title, processes, timeout):
    """The output of each process, as (stdout, stderr). Unless all of them succeed within `timeout` seconds,
    ends this program with the output and the state of each."""
    until = time.monotonic() + timeout
    outputs, states = [], []
    for process in processes:
        try:
            outputs.append(process.communicate(timeout=max(0, until - time.monotonic())))
            states.append(f"exit code {process.returncode}")
        except subprocess.TimeoutExpired:
            code = process.poll()
            states.append(f"exit code {code}" if code is not None else f"still ran after {timeout:g} s")
            process.kill()
            outputs.append(process.communicate())
    if any(state != "exit code 0" for state in states):
        told = [f"{process.args}: {state}\nstdout: {stdout}\nstderr: {stderr}"
                for process, state, (stdout, stderr) in zip(processes, states, outputs)]
        sys.exit("\n".join([f"{title} failed", *told]))
    return outputs


def start(words, environment=None):
    """Starts a process; `finish` reads its output."""
    return subprocess.Popen([str(word) for word in words], text=True, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            env={**os.environ, **(environment or {})})


class BenchLab(Lab):
    """A lab to measure on."""

    made = 0

    def __init__(self, hosts, arguments, options=()):
        name = f"bench-{os.getpid()}-{BenchLab.made}"
        BenchLab.made += 1
        words = ["--hosts", hosts, "--node-spin", arguments.node_spin, *options]
        for option, value in {"--nodes": arguments.nodes, "--hosts-per-leaf": arguments.hosts_per_leaf,
                              "--loss": arguments.loss}.items():
            words += [] if option in options else [option, value]
        for option, value in {"--rate": arguments.rate, "--cores-per-host": arguments.cores_per_host}.items():
            words += [option, value] if value else []
        words += ["--node-kernel"] if arguments.node_kernel and "--node-kernel" not in options else []
        super().__init__(arguments.tributary, name, *words)

    def run(self, method, hosts, cases, programs, arguments):
        """Microseconds by case; ends this program if the run fails."""
        mpi, is_plain, environment = METHODS[method]
        words = [case for case, _ in cases]
        lines = self.lines(method, (mpi, is_plain, environment), hosts, words, programs, arguments)
        return {case_of(line): line["median_us"] for line in lines}

    def measuring(self, method, hosts, cases, programs, arguments):
        """The command that runs the program on the lab's first hosts."""
        mpi, is_plain, _ = method
        plain = ["--plain"] if is_plain else []
        return self.words("run", *plain, "--", mpirun(arguments, mpi), "-n", hosts, programs[mpi], *cases)

    def at_once(self, jobs, method, programs, arguments):
        """Medians of `jobs` jobs of two hosts each, through one node, while all of them ran."""
        cases = ["allreduce:8"] * GROUPS_CASES
        words = self.measuring(method, 2, cases, programs, arguments)
        # The node needs a core too.
        environment = {**waiting(2 * jobs + 1, arguments.cores_per_host), **method[2]}
        running = [start(words, environment) for _ in range(jobs)]
        outputs = finish(f"{jobs} groups at once", running, arguments.timeout)
        # During the first and the last third, other jobs may not have run.
        third = GROUPS_CASES // 3
        return [statistics.median([json.loads(line)["median_us"] for line in output.splitlines()
                                   if line.startswith("{")][third:-third]) for output, _ in outputs]

    def lines(self, title, method, hosts, cases, programs, arguments):
        """Runs the program on the lab's hosts; its figures, one mapping a case."""
        mpi, is_plain, environment = method
        words = self.measuring(method, hosts, cases, programs, arguments)
        # The node needs a core too, where everything goes through it.
        processes = hosts + (environment.get("TRIBUTARY_BETWEEN_HOSTS") == "tree")
        running = start(words, {**waiting(processes, arguments.cores_per_host), **ALL_LENGTHS, **environment})
        (stdout, stderr), = finish(f"{title} on {hosts} hosts", [running], arguments.timeout)
        if not is_plain and " 0 passed_through" not in stderr:
            sys.exit(f"{title} on {hosts} hosts left operations to the underlying MPI:\n{stderr}")
        lines = [json.loads(line) for line in stdout.splitlines() if line.startswith("{")]
        return [{**line, "mpi": mpi, "is_ours": not is_plain} for line in lines]

    def node_peak_kib(self):
        """The peak memory of the aggregation node's process (VmHWM)."""
        found = self.ask_node("leaf0-an", "grep VmHWM $it/status").split()
        return int(found[found.index("VmHWM:") + 1])

    def node_cpu_seconds(self, member="leaf0-an"):
        """The processor time that an aggregation node's process has used."""
        # Fields 14 and 15 of proc_pid_stat(5), counted from behind the name in parentheses.
        fields = self.ask_node(member, "cat $it/stat").rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def ask_node(self, member, command):
        """The output of a shell command about an aggregation node's process, whose folder is $it."""
        return self.output(member, "sh", "-c", "for it in /proc/[0-9]*; do "
                           "[ \"$(readlink $it/ns/net)\" = \"$(readlink /proc/self/ns/net)\" ] && "
                           f"grep -qz '^node$' $it/cmdline && {command}; done; true")
