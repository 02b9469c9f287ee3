#!/usr/bin/env python3
"""What one tenant's flood costs another: latency of a quiet tenant while another does what it can.

Both share a manager and a node of this machine. Each kind of flood also runs against a fabric of its own beside, so that
it takes as much of the machine and nothing of the shared node: the ratio of the two is what sharing costs. Rounds take
the cases in turn; medians over rounds are printed. The quiet tenant's results are checked in every round, and every
refusal that the flood provokes must name the flooding tenant. No wall time is judged.
"""

import contextlib
import json
import os
import pathlib
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from harness import bench_labs, running  # noqa: E402, their folder is on the path only now
from harness.compiling import compile_soak  # noqa: E402
from harness.fabrics import Fabric  # noqa: E402
from harness.places import mpirun, parser_of  # noqa: E402

# Outstanding operations that a communicator asks for.
OSOS_OF_A_GROUP = 8
TENANTS = {"quiet": {}, "bounded": {"osos": OSOS_OF_A_GROUP}, "flooding": {}}
# Longer than any measurement takes.
FLOOD_SECONDS = 60


def parse_arguments():
    parser = parser_of(__doc__.splitlines()[0])
    parser.add_argument("--mpi", choices=["openmpi", "mpich"], default="mpich")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--case", default="allreduce:8", help="what the quiet tenant does (default %(default)s)")
    parser.add_argument("--json", action="store_true", help="one object per line")
    parser.add_argument("--timeout", type=float, default=60)
    return parser.parse_args()


def job_environment(fabric, tenant, arguments):
    """That of a job of two hosts that this machine acts as."""
    return running.environment(
        TRIBUTARY_MANAGER=fabric.manager, TRIBUTARY_TOKEN_FILE=str(fabric.folder / f"{tenant}.token"),
        LD_PRELOAD=str(arguments.tributary.resolve().with_name("libtributary.so")),
        TRIBUTARY_HOSTS="2", TRIBUTARY_BETWEEN_HOSTS="tree", TRIBUTARY_CHANNEL="tcp",
        TRIBUTARY_REPORT=str(fabric.folder / "report.json"), **bench_labs.waiting(2 + 2))


def launch_words(arguments):
    return [mpirun(arguments, arguments.mpi), "-n", "2"]


def measure(fabric, program, arguments):
    """Microseconds of the quiet tenant's calls: median and 99th percentile."""
    done = subprocess.run([*launch_words(arguments), program, arguments.case], check=True, text=True, capture_output=True,
                          env=job_environment(fabric, "quiet", arguments), timeout=arguments.timeout)
    line = json.loads(next(line for line in done.stdout.splitlines() if line.startswith("{")))
    return line["call_median_us"], line["p99_us"]


@contextlib.contextmanager
def operations(tenant, fabric, soak, arguments):
    """All kinds of operations on seven communicators, several at once, as fast as they go."""
    words = [*launch_words(arguments), soak, "--operations", "1e18", "--seconds", str(FLOOD_SECONDS), "--depth", "8"]
    job = subprocess.Popen(words, env=job_environment(fabric, tenant, arguments), stdin=subprocess.DEVNULL,
                           stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until(lambda: fabric.status()["groups"])
        yield
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        wait_until(lambda: not fabric.held())


@contextlib.contextmanager
def in_threads(work, threads=2):
    """Threads that do `work` again and again; what they raised is raised here."""
    stop, raised = threading.Event(), []

    def run():
        try:
            while not stop.is_set():
                work()
        except Exception as error:  # pylint: disable=broad-exception-caught
            raised.append(error)

    flooding = [threading.Thread(target=run, daemon=True) for _ in range(threads)]
    for thread in flooding:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in flooding:
            thread.join()
    if raised:
        raise raised[0]


def requests(fabric, *_):
    """Jobs that are admitted, and groups that are asked for with a wrong secret: calls to the manager."""
    token = (fabric.folder / "flooding.token").read_text(encoding="utf-8").strip()

    def post(path, body):
        request = urllib.request.Request(f"http://{fabric.manager}{path}", json.dumps(body).encode(),
                                         {"Authorization": f"Bearer {token}"}, method="POST")
        with urllib.request.urlopen(request) as answer:
            return json.loads(answer.readline())

    def work():
        job = post("/v1/jobs", {"name": "flood", "processes": 1})["job"]
        with contextlib.suppress(urllib.error.HTTPError):
            post(f"/v1/jobs/{job}/groups", {"secret": "0" * 16, "label": "", "hosts": ["a"], "osos": 1,
                                            "payload_max_bytes": 64})

    return in_threads(work)


def garbage(fabric, *_):
    """Random datagrams to the node."""
    host, port = fabric.status()["nodes"][0]["registration"]["address"]["tcp"].rsplit(":", 1)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    packets = [os.urandom(length) for length in (12, 48, 200, 1400)]

    def work():
        for packet in packets:
            with contextlib.suppress(ConnectionRefusedError):
                sender.sendto(packet, (host, int(port)))

    return in_threads(work, 1)


FLOODS = {
    "operations of one group": lambda *given: operations("bounded", *given),
    "operations of seven groups": lambda *given: operations("flooding", *given),
    "calls to the manager": requests,
    "garbage to the node": garbage,
}


def wait_until(condition):
    time.sleep(0.05)
    until = time.monotonic() + 20
    while not condition():
        if time.monotonic() > until:
            sys.exit("flood: jobs did not start or end within 20 s")
        time.sleep(0.05)


def check_limits(fabric):
    """The bounded tenant held no more than it may, and the flood was one."""
    held = {tenant["name"]: tenant["osos"]["used"] for tenant in fabric.status()["tenants"]}
    if held["bounded"] > OSOS_OF_A_GROUP:
        sys.exit(f"flood: `bounded` holds {held['bounded']} outstanding operations, it may hold {OSOS_OF_A_GROUP}")
    return held


def main():
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    arguments = parse_arguments()
    soak = compile_soak(arguments.mpi, arguments)
    bench = bench_labs.compile_program(arguments.mpi, arguments)
    figures = {"alone": []}
    with tempfile.TemporaryDirectory(prefix="tributary-flood-") as temporary:
        folders = [pathlib.Path(temporary, name) for name in ("shared", "beside")]
        for folder in folders:
            folder.mkdir()
        fabrics = [Fabric(arguments.tributary.resolve(), folder, ["node"], TENANTS) for folder in folders]
        try:
            for number in range(arguments.rounds):
                figures["alone"].append(measure(fabrics[0], bench, arguments))
                for name, flood in FLOODS.items():
                    for where, fabric in zip(("shared", "beside"), fabrics):
                        with flood(fabric, soak, arguments):
                            figure = measure(fabrics[0], bench, arguments)
                            check_limits(fabric)
                        figures.setdefault((name, where), []).append(figure)
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
        finally:
            for fabric in fabrics:
                fabric.stop()
    show(figures, arguments)


def show(figures, arguments):
    def middle(rows):
        return [statistics.median(column) for column in zip(*rows)]

    alone = middle(figures["alone"])
    if not arguments.json:
        print(f"{os.cpu_count()} cores, {arguments.mpi}, {arguments.case}, {arguments.rounds} rounds; alone: median "
              f"{alone[0]:.1f} us, 99th percentile {alone[1]:.1f} us")
        print(f"{'flood':<30}{'median us: shared':>18}{'beside':>9}{'ratio':>7}{'99th: shared':>14}{'beside':>9}{'ratio':>7}")
    for name in FLOODS:
        (median, p99), (median_beside, p99_beside) = (middle(figures[name, where]) for where in ("shared", "beside"))
        row = {"flood": name, "median_us": median, "median_beside_us": median_beside, "p99_us": p99,
               "p99_beside_us": p99_beside, "alone_median_us": alone[0], "alone_p99_us": alone[1]}
        print(json.dumps(row) if arguments.json else
              f"{name:<30}{median:>18.1f}{median_beside:>9.1f}{median / median_beside:>7.2f}"
              f"{p99:>14.1f}{p99_beside:>9.1f}{p99 / p99_beside:>7.2f}")


if __name__ == "__main__":
    main()
