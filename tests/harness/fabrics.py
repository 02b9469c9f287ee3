"""A manager and nodes of this machine, for tests that start and end jobs beside each other."""

import json
import pathlib
import subprocess

# How long a daemon may take to stop, in seconds.
STOP_WITHIN = 20


class Fabric:
    """A manager and its nodes, and tenants: limits by name, as in a file of tenants."""

    def __init__(self, program, folder, nodes, tenants=None):
        self.program, self.folder, self.nodes, self.daemons = program, folder, nodes, []
        self.token = self.create_token("token")
        options = ["--tenants", self.write_tenants(tenants)] if tenants else []
        said = self.start("manager", "--listen", "127.0.0.1:0", "--token-file", self.token, *options)
        self.manager = said.split()[-1]
        for name in nodes:
            self.start("node", "--manager", self.manager, "--token-file", self.token, "--listen", "127.0.0.1:0",
                       "--name", name)

    def create_token(self, name):
        file = self.folder / name
        subprocess.run([self.program, "token", "create", file], check=True, stdout=subprocess.DEVNULL)
        return file

    def write_tenants(self, tenants):
        lines = []
        for name, limits in tenants.items():
            token = self.create_token(f"{name}.token")
            lines += [f"[{name}]", f'token_file = "{token}"', *(f"{what} = {most}" for what, most in limits.items())]
        file = self.folder / "tenants.toml"
        file.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return file

    def start(self, *words):
        with open(self.folder / f"log-{len(self.daemons)}", "w", encoding="utf-8") as log:
            daemon = subprocess.Popen([self.program, *words], stdout=subprocess.PIPE, stderr=log, text=True)
        self.daemons.append(daemon)
        return daemon.stdout.readline()

    def stop(self):
        for daemon in self.daemons:
            daemon.terminate()
        for daemon in self.daemons:
            daemon.wait(timeout=STOP_WITHIN)

    def status(self):
        answer = subprocess.run([self.program, "status", "--json", "--manager", self.manager, "--token-file", self.token],
                                check=True, capture_output=True, text=True)
        return json.loads(answer.stdout)

    def held(self):
        """What jobs hold of it, for people; empty if nothing."""
        status = self.status()
        nodes = [f"{node['osos_used']} OSOs of {node['registration']['name']}"
                 for node in status["nodes"] if node["osos_used"]]
        held = [f"{len(status[what])} {what}" for what in ("jobs", "groups") if status[what]]
        are, should = len(status["nodes"]), len(self.nodes)
        missing = [f"{are} nodes of {should}"] if are != should else []
        return ", ".join(held + nodes + missing)

    def usage(self):
        """Descriptors, threads and locks of each daemon."""
        locks = pathlib.Path("/proc/locks").read_text(encoding="utf-8").splitlines()
        rows = []
        for daemon in self.daemons:
            process = pathlib.Path(f"/proc/{daemon.pid}")
            rows.append({"descriptors": len(list((process / "fd").iterdir())),
                         "threads": len(list((process / "task").iterdir())),
                         "locks": sum(line.split()[4] == str(daemon.pid) for line in locks)})
        return rows

    def resident_kib(self):
        def of(daemon):
            status = pathlib.Path(f"/proc/{daemon.pid}/status").read_text(encoding="utf-8")
            return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS"))
        return [of(daemon) for daemon in self.daemons]
