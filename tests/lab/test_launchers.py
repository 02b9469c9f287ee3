"""Starts MPI programs on hosts of a lab as clusters do: by ssh, by Slurm, and by `tributary lab run`.

The hosts run Debian's sshd and slurmd. Commands start in an environment of their own, with nothing of the lab's: whatever ranks
need, `tributary run` or the MPI has to bring to them. Open MPI 5 and 4, MPICH's Hydra, `srun` with PMI-2 and PMIx, and a launcher
within `salloc`: with nothing deployed, with an aggregator that the job brings, and with a manager that the launcher's environment names. Jobs that are killed leave no process
and no socket.
"""

import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import pytest
from harness.compiling import compile_soak
from harness.jobs import run_program, world_of
from harness.labs import Lab, taken_down_on_sigterm
from harness.places import mpirun
from harness.plugin import skip_unless_ci
from harness.processes import eventually, kill_all, processes_that
from harness.running import Failure, bounded
from harness.undeployed import sockets

SAMPLE = ("--sample", "256")
# Slurm's pmi2 takes no request as long as MPICH's over UCX, from 8 hosts on, of programs with threads, and of others where UCX
# finds more devices: plain MPICH does not start.
SHORT_ADDRESSES = {"MPIR_CVAR_CH4_NETMOD": "ofi", "FI_PROVIDER": "tcp"}
BY_PMI2 = "srun --mpi=pmi2"
OPEN_MPI_IN_SALLOC = "Open MPI 5 in salloc"
TOOLS = ("sshd", "ssh-keygen", "slurmctld", "slurmd", "srun")
# Debian has daemons where a user's shell does not look.
TOOLS_PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
# Where sshd separates privileges; it can't be told another place.
SSHD_FOLDER = pathlib.Path("/run/sshd")
# What a user's shell has, and no more.
CLEAN = {"HOME": "/root", "USER": "root", "PATH": "/usr/local/bin:/usr/bin:/bin"}
# Open MPI does not start as root unless it is told twice; its two launchers have names of their own for that.
AS_ROOT = {f"{name}_ALLOW_RUN_AS_ROOT{confirm}": "1" for name in ("OMPI", "PRTE") for confirm in ("", "_CONFIRM")}
# Names of the processes that start a job's ranks. Slurm's salloc, in which some of them run, is killed with them: if its job is
# cancelled as its command ends, it may turn in a loop for ever, without a child (seen with Slurm 22.05, once in some 15 times).
LAUNCHERS = ("mpirun", "mpiexec", "mpiexec.hydra", "prterun", "srun", "salloc")
# In the trace of an Open MPI 5 that crashes in its own MPI_Init, with or without the library: a message of a rank that is
# through with it comes before this one has set up the world's communicator (open-mpi/ompi#12495). Seen with srun on busy cores.
OWN_CRASH = ("mca_pml_ob1_recv_frag_callback_match", "ompi_mpi_init")
OWN_CRASH_SAID = ", a second time: Open MPI had crashed in its own MPI_Init"
DEBIAN_OPENMPI = pathlib.Path("/usr/bin/mpirun.openmpi")

SSHD = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/user_key.pub
PermitRootLogin prohibit-password
PasswordAuthentication no
StrictModes no
UsePAM no
PidFile none
"""
SSH = """\
Host *
IdentityFile {folder}/user_key
StrictHostKeyChecking no
UserKnownHostsFile /dev/null
LogLevel ERROR
"""
# Hosts of a lab share the machine's files, and slurmd expects those to be its own.
SLURM = """\
ClusterName=lab
SlurmctldHost={first}
SlurmUser=root
SlurmdUser=root
AuthType=auth/none
CredType=cred/none
ProctrackType=proctrack/pgid
TaskPlugin=task/none
ReturnToService=2
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
TopologyPlugin=topology/tree
{nodes}
PartitionName=all Nodes=ALL Default=YES OverSubscribe=YES State=UP MaxTime=INFINITE
"""
# Two leaf switches, to which hosts are dealt in turn.
TOPOLOGY = """\
SwitchName=leaf0 Nodes={even}
SwitchName=leaf1 Nodes={odd}
SwitchName=spine Switches=leaf0,leaf1
"""
BY_LEAF = "2 leaves"
CGROUP = "CgroupPlugin=cgroup/v1\nCgroupAutomount=no\n"


def find(tool):
    return shutil.which(tool, path=TOOLS_PATH)


class Cluster:
    """The daemons of launchers on the hosts of a lab, and commands that a user gives on its first host."""

    def __init__(self, lab, hosts, folder):
        self.lab, self.folder, self.daemons = lab, folder, []
        self.hosts = [f"h{host}" for host in range(hosts)]
        self.has_made_folder = False
        self.slurm_conf, self.agent = folder / "slurm.conf", folder / "ssh"
        for key in ("host_key", "user_key"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True)
        nodes = "\n".join(f"NodeName={host} CPUs={os.cpu_count()} State=UNKNOWN" for host in self.hosts)
        even, odd = (",".join(self.hosts[first::2]) for first in range(2))
        texts = {"sshd.conf": SSHD, "ssh.conf": SSH, "slurm.conf": SLURM, "topology.conf": TOPOLOGY, "cgroup.conf": CGROUP}
        for name, text in texts.items():
            text = text.format(folder=folder, first=self.hosts[0], nodes=nodes, even=even, odd=odd)
            (folder / name).write_text(text, encoding="utf-8")
        self.agent.write_text(f'#!/bin/sh\nexec ssh -F {folder}/ssh.conf "$@"\n', encoding="utf-8")
        self.agent.chmod(0o700)
        (folder / "state").mkdir()
        for hosts, name in ((self.hosts, "hosts"), (self.hosts[1:], "others")):
            (folder / name).write_text("".join(f"{host}\n" for host in hosts), encoding="utf-8")

    def start(self):
        if not SSHD_FOLDER.exists():
            SSHD_FOLDER.mkdir(mode=0o755)
            self.has_made_folder = True
        self.daemon(self.hosts[0], find("slurmctld"), "-D", "-i", "-f", self.slurm_conf)
        for host in self.hosts:
            (self.folder / f"spool-{host}").mkdir()
            (self.folder / f"tmp-{host}").mkdir()
            self.daemon(host, find("sshd"), "-D", "-f", self.folder / "sshd.conf")
            self.daemon(host, find("slurmd"), "-D", "-N", host, "-f", self.slurm_conf)
        is_ready = lambda: self.is_idle() and all(self.says(host, self.agent, host, "hostname") for host in self.hosts)
        if not eventually(is_ready, 60):
            logs = [f"{log}:\n{log.read_text(errors='replace')[-2000:]}" for log in self.folder.glob("*.log")]
            raise Failure("the launchers' daemons are not ready\n" + "\n".join(logs))

    def is_idle(self):
        """Whether Slurm is through with all jobs."""
        return self.says(f"{len(self.hosts)} idle", "sinfo", "-h", "-o", "%D %T")

    def await_idle(self):
        # While Slurm ends a job that was cancelled, an srun that has begun since may be asked to end, too.
        if not eventually(self.is_idle, 60):
            raise Failure("Slurm is not through with the job before")

    def daemon(self, host, *words):
        log = (self.folder / f"{pathlib.Path(words[0]).name}-{host}.out").open("w", encoding="utf-8")
        self.daemons.append(subprocess.Popen(self.lab.on(host, *words), stdin=subprocess.DEVNULL, stdout=log,
                                             stderr=subprocess.STDOUT))

    def stop(self):
        # A slurmd that is asked to end waits for what is left of a job that was killed. The lab ends it with its host.
        for daemon in self.daemons:
            daemon.kill()
            daemon.wait()
        if self.has_made_folder:
            SSHD_FOLDER.rmdir()

    def says(self, text, *words):
        code, said = bounded(self.words({}, *words), 20)
        return code == 0 and text in said

    def words(self, environment, *words):
        """A command in a user's environment on the first host."""
        variables = {**CLEAN, **AS_ROOT, "SLURM_CONF": self.slurm_conf, "TMPDIR": self.folder, **environment}
        return self.lab.on(self.hosts[0], "env", "-i", *(f"{name}={value}" for name, value in variables.items()), *words)

    def manager(self):
        """Where the lab's manager is, as the environment of its commands says."""
        said = self.lab.output(self.hosts[0], "env")
        wanted = ("TRIBUTARY_MANAGER=", "TRIBUTARY_TOKEN_FILE=")
        return dict(line.split("=", 1) for line in said.splitlines() if line.startswith(wanted))


def launchers(cluster, arguments):
    """How jobs are started: by name, the kind of MPI, and the words before a program of so many ranks."""
    folder = cluster.folder
    openmpi, mpich = mpirun(arguments, "openmpi"), mpirun(arguments, "mpich")
    by_ssh = {
        "Open MPI 5 by ssh": ("openmpi", lambda ranks, hosts: [
            openmpi, "--prtemca", "plm_ssh_agent", cluster.agent, "--hostfile", folder / hosts,
            "--map-by", "node", "-n", ranks]),
        "MPICH by ssh": ("mpich", lambda ranks, hosts: [
            mpich, "-launcher", "ssh", "-launcher-exec", cluster.agent, "-f", folder / hosts, "-n", ranks]),
    }
    if DEBIAN_OPENMPI.exists():
        # With an option of its own for variables, beside which it takes no list of them.
        by_ssh["Open MPI 4 by ssh"] = ("debian-openmpi", lambda ranks, hosts: [
            DEBIAN_OPENMPI, "--mca", "plm_rsh_agent", cluster.agent, "-x", "HOME", "--hostfile", folder / hosts,
            "--map-by", "node", "--oversubscribe", "-n", ranks])
    srun = lambda plugin: lambda ranks, _: ["srun", f"--mpi={plugin}", f"-N{len(cluster.hosts)}", f"-n{ranks}"]
    salloc = ["salloc", "-Q", f"-N{len(cluster.hosts)}"]
    by_slurm = {
        BY_PMI2: ("mpich", srun("pmi2")),
        "srun --mpi=pmix": ("openmpi", srun("pmix")),
        OPEN_MPI_IN_SALLOC: ("openmpi", lambda ranks, _: [
            *salloc, openmpi, "--map-by", "node", "-n", ranks]),
        "MPICH in salloc": ("mpich", lambda ranks, _: [*salloc, mpich, "-n", ranks]),
    }
    return by_ssh, by_slurm


def job_words(cluster, launcher, ranks, hosts, options, program, environment, arguments):
    words = [arguments.tributary, "run", *options, "--", *launcher(ranks, hosts), *program]
    return cluster.words(environment, *words)


# What there is beside the hosts: the variables and options of a job that uses it, and the path of its operations.
BESIDE = {
    "nothing deployed": lambda cluster: ({}, [], "direct"),
    "its aggregator": lambda cluster: ({"TRIBUTARY_BETWEEN_HOSTS": "tree"}, ["--aggregator"], "in_tree"),
    "with a manager": lambda cluster: ({**cluster.manager(), "TRIBUTARY_BETWEEN_HOSTS": "tree"}, [], "in_tree"),
}


def check_job(cluster, title, launcher, program, beside, arguments):
    """Results are right, all hosts take part, and operations go between them over links, or through a tree."""
    environment, options, path = BESIDE[beside](cluster)
    counts, text, remark = run_job(cluster, title, launcher, program, environment, options, arguments)
    other = "direct" if path == "in_tree" else "in_tree"
    if counts[path] == 0 or counts[other] != 0:
        raise Failure(f"not {path}: {counts}\n{text}")
    return f"{counts[path]} {path}{remark}"


def check_leaves(cluster, title, launcher, program, arguments):
    """Slurm tells ranks at which leaf switch their host is, and hosts of a leaf meet first. Open MPI starts the ranks of its launcher's
    host itself, which are told nothing: then nothing is known of any."""
    environment = {"TRIBUTARY_BETWEEN_HOSTS": "replicated"}
    counts, text, remark = run_job(cluster, title, launcher, program, environment, [], arguments)
    carriers = world_of(counts)["carriers"]
    said = carriers.partition(" by ")[2]
    if counts["direct"] == 0 or said != ("" if title == OPEN_MPI_IN_SALLOC else BY_LEAF):
        raise Failure(f"carried by {carriers!r}: {counts}\n{text}")
    return carriers + remark


def run_job(cluster, title, launcher, program, environment, options, arguments):
    """Runs a job to its end, whose results are right, on all hosts; its report, what it printed, and a remark."""
    cluster.await_idle()
    if title == BY_PMI2:
        environment = {**SHORT_ADDRESSES, **environment}
    ranks = len(cluster.hosts)
    report = cluster.folder / "report.json"
    report.unlink(missing_ok=True)
    options = [*options, "--report", report]
    words = job_words(cluster, launcher, ranks, "hosts", options, program, environment, arguments)
    code, text = bounded(words, arguments.timeout)
    has_crashed = code != 0 and all(word in text for word in OWN_CRASH)
    if has_crashed:
        code, text = bounded(words, arguments.timeout)
    if code != 0 or " 0 failed" not in text:
        raise Failure(f"exit code {code}\n{text}")
    counts = json.loads(report.read_text(encoding="utf-8"))
    world = world_of(counts)
    if (world["ranks"], world["hosts"]) != (ranks, len(cluster.hosts)):
        raise Failure(f"{world['ranks']} ranks on {world['hosts']} hosts\n{text}")
    return counts, text, OWN_CRASH_SAID if has_crashed else ""


def check_lab_run(cluster, program, arguments):
    """`tributary lab run` tells Open MPI 4 the lab's hosts in its own way; the ranks lie on all of them."""
    ranks = len(cluster.hosts)
    world = world_of(run_program("debian-openmpi", cluster.lab.name, ranks, 1, program, arguments, AS_ROOT))
    if (world["ranks"], world["hosts"]) != (ranks, ranks):
        raise Failure(f"{world['ranks']} ranks on {world['hosts']} hosts")
    return f"{ranks} ranks on as many hosts"


def check_from_elsewhere(cluster, launcher, program, arguments):
    """The launcher's host takes no part, and its files are its own: ranks can't write the report, and say it."""
    own = f"mount -t tmpfs none {cluster.folder}/own && exec \"$@\""
    (cluster.folder / "own").mkdir(exist_ok=True)
    environment = {"TMPDIR": cluster.folder / "own"}
    words = [arguments.tributary, "run", "--", *launcher(len(cluster.hosts) - 1, "others"), *program]
    words = cluster.words(environment, "unshare", "-m", "sh", "-c", own, "sh", *words)
    code, text = bounded(words, arguments.timeout)
    if code != 0 or " 0 failed" not in text:
        raise Failure(f"exit code {code}\n{text}")
    told = [line for line in text.splitlines() if line.startswith("tributary: ") and " in_host, " in line]
    if len(told) != 1 or " 0 direct" in told[0] or "its report is above" not in text:
        raise Failure(f"no report: {text}")
    return told[0].removeprefix("tributary: ")


def check_killed(cluster, launcher, mpi, arguments):
    """The launcher is killed in the middle of the job's operations, or Slurm's job is cancelled."""
    cluster.await_idle()
    program = compile_soak(mpi, arguments)
    before = sockets(cluster.lab.name, arguments)
    ends = cluster.folder / "ends"
    ends.unlink(missing_ok=True)
    words = job_words(cluster, launcher, len(cluster.hosts), "hosts", [],
                      [program, "--seconds", 600, "--depth", 2, "--ends", ends], SHORT_ADDRESSES, arguments)
    said = (cluster.folder / "said").open("w+", encoding="utf-8")
    job = subprocess.Popen([str(word) for word in words], stdin=subprocess.DEVNULL, stdout=said, stderr=subprocess.STDOUT)
    try:
        if not eventually(lambda: ends.exists() and ends.stat().st_size > 0, 60):
            raise Failure("no operation ran")
        running = processes_of(cluster, program)
        if len(running) < len(cluster.hosts):
            raise Failure(f"{len(running)} processes run")
        if not cluster.says("", "scancel", "--user=root"):
            raise Failure("scancel failed")
        kill_launchers(cluster)
        if not eventually(lambda: not processes_of(cluster, program), 60):
            raise Failure(f"processes stay: {processes_of(cluster, program)}")
        # A launcher that begins while the others are killed, such as the srun of a step, would be waited for.
        if not eventually(lambda: job.poll() is not None or kill_launchers(cluster), 60):
            raise Failure("the launcher goes on")
        if not eventually(lambda: sockets(cluster.lab.name, arguments) <= before, 60):
            raise Failure(f"sockets stay: {sockets(cluster.lab.name, arguments) - before}")
    except (Failure, subprocess.TimeoutExpired) as failure:
        said.seek(0)
        raise Failure(f"{failure}\n{said.read()}") from failure
    finally:
        kill_all(processes_of(cluster, program))
        job.kill()
        job.wait()
        said.close()
    return f"{len(running)} processes and all sockets are gone"


def processes_of(cluster, program):
    """The ranks of this cluster's job: they run the program, and its command names a file of the cluster's."""
    named = os.fsencode(cluster.folder / "ends")
    return processes_that(lambda it: os.readlink(it / "exe") == str(program) and named in (it / "cmdline").read_bytes())


def launchers_of(cluster):
    """The processes of launchers that were started on this cluster, as their environment says."""
    named = os.fsencode(f"SLURM_CONF={cluster.slurm_conf}")
    return processes_that(lambda it: (it / "comm").read_text().strip() in LAUNCHERS and
                          named in (it / "environ").read_bytes().split(b"\0"))


def kill_launchers(cluster):
    kill_all(launchers_of(cluster))


# How jobs are started, by name; `launchers` says how in words.
BY_SSH = ("Open MPI 5 by ssh", "MPICH by ssh", "Open MPI 4 by ssh")
BY_SLURM = (BY_PMI2, "srun --mpi=pmix", OPEN_MPI_IN_SALLOC, "MPICH in salloc")
OF_DEBIAN = "Open MPI 4 by ssh"


@pytest.fixture(scope="module")
def cluster(request, arguments):
    """A lab whose hosts have the daemons of launchers."""
    missing = [tool for tool in TOOLS if find(tool) is None]
    if missing or os.geteuid() != 0:
        skip_unless_ci(f"{', '.join(missing)} not found (make launchers-tools)" if missing else "sshd and slurmd need root")
    hosts = request.config.getoption("--cluster")
    # The lab ends first, and what its daemons write with it.
    with taken_down_on_sigterm(), tempfile.TemporaryDirectory(prefix="tributary-launchers-") as temporary, \
            Lab(arguments.tributary, f"launch-{os.getpid()}", "--hosts", hosts, "--hosts-per-leaf", hosts) as lab:
        cluster = Cluster(lab, hosts, pathlib.Path(temporary))
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()


@pytest.fixture
def started(title, cluster, arguments, compiled):
    """How a job is started, and the program of checked collectives for its MPI."""
    if title == OF_DEBIAN and not DEBIAN_OPENMPI.exists():
        skip_unless_ci(f"no {DEBIAN_OPENMPI} (make mpi-debian)")
    by_ssh, by_slurm = launchers(cluster, arguments)
    mpi, launcher = {**by_ssh, **by_slurm}[title]
    return mpi, launcher, [compiled("collectives", mpi), *SAMPLE]


class TestLaunchers:
    @pytest.mark.parametrize("beside", BESIDE)
    @pytest.mark.parametrize("title", [*BY_SSH, *BY_SLURM])
    def test_a_job_goes_between_all_hosts(self, title, beside, started, cluster, arguments, tell):
        _, launcher, program = started
        tell(check_job(cluster, title, launcher, program, beside, arguments))

    @pytest.mark.parametrize("title", BY_SLURM)
    def test_hosts_of_a_leaf_meet_first(self, title, started, cluster, arguments, tell):
        _, launcher, program = started
        tell(check_leaves(cluster, title, launcher, program, arguments))

    @pytest.mark.parametrize("title", [OF_DEBIAN])
    def test_lab_run_tells_open_mpi_4_the_hosts(self, title, started, cluster, arguments, tell):
        tell(check_lab_run(cluster, started[2], arguments))

    @pytest.mark.parametrize("title", BY_SSH)
    def test_a_launcher_elsewhere_has_the_report_said(self, title, started, cluster, arguments, tell):
        _, launcher, program = started
        tell(check_from_elsewhere(cluster, launcher, program, arguments))

    @pytest.mark.parametrize("title", [title for title in (*BY_SSH, *BY_SLURM) if title != OF_DEBIAN])
    def test_nothing_stays_of_a_job_that_is_killed(self, title, started, cluster, arguments, tell):
        mpi, launcher, _ = started
        tell(check_killed(cluster, launcher, mpi, arguments))
