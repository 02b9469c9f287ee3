"""A manager and aggregation nodes in a tree of three levels, with this machine acting as hosts below its leaves."""

import http.client
import json
import pathlib
import subprocess
import threading

SPINES = 9
LEAVES_OF_SPINE = 10
NODES = 1 + SPINES + SPINES * LEAVES_OF_SPINE
START_TIMEOUT_S = 120


def names():
    """Every node's name and the names of its children."""
    spines = {f"spine{spine}": [f"leaf{spine}{leaf}" for leaf in range(LEAVES_OF_SPINE)] for spine in range(SPINES)}
    return {"core": list(spines), **spines, **{leaf: [] for leaves in spines.values() for leaf in leaves}}


def topology(hosts):
    """The tree in Tributary's own format: a switch of the same name beside every node, and hosts below some leaves."""
    leaves = [name for name, children in names().items() if not children]
    below = {leaves[number * len(leaves) // len(hosts)]: [host] for number, host in enumerate(hosts)}
    entries = ['root = "core"']
    for name, children in names().items():
        entries.append(f'[[switch]]\nname = "{name}"\nlinks = {json.dumps(children)}\nhosts = {json.dumps(below.get(name, []))}')
    return "\n".join(entries) + "\n"


class Fabric:
    """Daemons of this test; closing it ends them."""

    def __init__(self, program, folder, hosts):
        self.program, self.folder, self.started = program, pathlib.Path(folder), []
        self.token_file = self.folder / "token"
        subprocess.run([program, "token", "create", self.token_file], check=True)
        self.token = self.token_file.read_text().strip()
        machine = self.machine()
        (self.folder / "fabric.toml").write_text(topology([f"{machine}#{host}" for host in range(hosts)]))
        self.address = self.start_manager("--topology", self.folder / "fabric.toml")
        self.nodes = {name: self.start_node(name) for name in names()}
        self.wait_for_nodes(NODES)

    def machine(self):
        """What nodes call this machine."""
        self.address = self.start_manager()
        self.start_node("any")
        self.wait_for_nodes(1)
        [node] = self.ask("GET", "/v1/status")["nodes"]
        self.close()
        return node["registration"]["address"]["machine"]

    def start_manager(self, *options):
        manager = self.start("manager", "--listen", "127.0.0.1:0", *options)
        return manager.stdout.readline().split()[-1]

    def start_node(self, name):
        return self.start("node", "--manager", self.address, "--listen", "127.0.0.1:0", "--name", name, "--osos", "4096")

    def start(self, *command):
        words = [self.program, *command, "--token-file", self.token_file]
        process = subprocess.Popen([str(word) for word in words], stdout=subprocess.PIPE, text=True,
                                   stderr=(self.folder / "daemons.log").open("a"))
        self.started.append(process)
        return process

    def call(self, method, path, body=None, **headers):
        """An answer of the manager, with its connection, still open."""
        connection = http.client.HTTPConnection(self.address, timeout=START_TIMEOUT_S)
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        return connection.getresponse(), connection

    def ask(self, method, path, body=None):
        answer, _ = self.call(method, path, body, authorization=f"Bearer {self.token}")
        assert answer.status == 200, answer.read()
        return json.loads(answer.read())

    def wait_for_nodes(self, number):
        for _ in range(START_TIMEOUT_S * 5):
            if len(self.ask("GET", "/v1/status")["nodes"]) == number:
                return
            threading.Event().wait(0.2)
        raise AssertionError(f"not {number} nodes within {START_TIMEOUT_S} s")

    def close(self):
        for process in self.started:
            process.kill()
        for process in self.started:
            process.wait()
        self.started = []
