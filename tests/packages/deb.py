#!/usr/bin/env python3
"""Goal: the Debian package is the whole set-up, and leaves nothing behind. Method: a fresh Debian made by mmdebstrap
is booted by systemd-nspawn with its own systemd; there the package is installed, its units are checked and started, a
job of Debian's Open MPI runs through the node, and the package is upgraded, removed and purged.
"""

import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

import counts

HERE = pathlib.Path(__file__).resolve().parent
TIMEOUT_S = 300
# What every fresh Debian of the test has besides systemd.
PACKAGES = ("systemd", "systemd-sysv", "dbus", "python3-mpi4py", "openmpi-bin")
SUITE = "bookworm"
UNITS = ("tributary-manager", "tributary-node")
# It serves jobs of all users, and has capabilities: CAP_NET_ADMIN, CAP_NET_RAW and CAP_BPF.
RINGS = "tributary-rings"
RINGS_CAPABILITIES = 1 << 12 | 1 << 13 | 1 << 39
# What systemd-analyze calls "OK" ends at 4.9; lower is better.
EXPOSURE_MAX = 2.0


def run(*command):
    done = subprocess.run([str(word) for word in command], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          timeout=TIMEOUT_S)
    assert done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
    return done.stdout


class Guest:
    """A Debian of its own, booted."""

    def __init__(self, base, folder):
        self.root = folder / "root"
        self.root.mkdir()
        run("tar", "-C", self.root, "-xf", base)
        self.log = (folder / "boot.log").open("w")
        self.boot = subprocess.Popen(
            ["systemd-nspawn", "--quiet", "--boot", "--register=no", "--keep-unit", "--console=pipe", "-D", self.root],
            stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)
        self.init = self._first_process()
        self.wait_for("systemctl is-system-running --wait || test $? = 1")

    def _first_process(self):
        """The number of its systemd, seen from here."""
        children = pathlib.Path(f"/proc/{self.boot.pid}/task/{self.boot.pid}/children")
        for _ in range(TIMEOUT_S * 10):
            assert self.boot.poll() is None, "the Debian does not boot: " + pathlib.Path(self.log.name).read_text()
            if found := children.read_text().split():
                return found[0]
            time.sleep(0.1)
        raise AssertionError("the Debian has no first process")

    def sh(self, command, check=True):
        """What a command of its root says."""
        enter = ["nsenter", "--target", self.init, "--all", "/usr/bin/env", "-i", "HOME=/root", "LANG=C.UTF-8",
                 "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "sh", "-c", command]
        done = subprocess.run(enter, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=TIMEOUT_S,
                              stdin=subprocess.DEVNULL)
        assert not check or done.returncode == 0, f"{command}: exit code {done.returncode}\n{done.stdout}"
        return done.stdout

    def wait_for(self, command):
        """Tries until it succeeds."""
        for _ in range(TIMEOUT_S):
            outcome = self.sh(f"{command} && echo succeeded", check=False)
            if outcome.endswith("succeeded\n"):
                return
            time.sleep(1)
        raise AssertionError(f"{command}: {outcome}\n{self.sh('journalctl --no-pager | tail -40')}")

    def bring(self, file):
        shutil.copy(file, self.root / "root")

    def close(self):
        self.boot.terminate()
        self.boot.wait()
        self.log.close()


def build_base(file):
    """Makes the fresh Debian once; it has nothing of ours."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True)
        unfinished = file.with_suffix(".new.tar")
        run("mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, unfinished)
        unfinished.rename(file)


def next_version(package, folder):
    """The same package under a higher version, and that version."""
    run("dpkg-deb", "-R", package, folder / "next")
    control = folder / "next" / "DEBIAN" / "control"
    [version] = re.findall(r"^Version: (.*)$", control.read_text(), re.M)
    higher = f"{version}+next"
    control.write_text(control.read_text().replace(f"Version: {version}", f"Version: {higher}"))
    run("dpkg-deb", "--root-owner-group", "-b", folder / "next", folder / "next.deb")
    return folder / "next.deb", higher


def check_units(guest):
    paths = " ".join(f"/usr/lib/systemd/system/{unit}.service" for unit in (*UNITS, RINGS))
    # Its own documentation needs man, which so small a Debian lacks.
    complaints = guest.sh(f"systemd-analyze verify --man=no {paths}")
    assert not complaints, complaints
    for unit in (*UNITS, RINGS):
        level = guest.sh(f"systemd-analyze security --no-pager {unit}.service | tail -1")
        [exposure] = re.findall(r": ([0-9.]+) ", level)
        assert float(exposure) <= EXPOSURE_MAX, level
        print(f"{unit}: verified; exposure {exposure}")


def check_services(guest):
    """As README.Debian says; who they run as, that they have no rights, and bounded memory."""
    for unit in (*UNITS, RINGS):
        assert guest.sh(f"systemctl is-enabled {unit}", check=False).strip() == "disabled"
    guest.sh("tributary token create /etc/tributary/token")
    guest.sh("tributary token create /etc/tributary/tenants/physics.token")
    guest.sh("printf '[physics]\\ntoken_file = \"physics.token\"\\n' >>/etc/tributary/tenants/tenants.toml")
    guest.sh("systemctl enable --now tributary-manager && systemctl enable --now tributary-node")
    guest.wait_for("tributary status --manager 127.0.0.1:7470 --token-file /etc/tributary/token | grep 127.0.0.1:7471")
    for unit in UNITS:
        pid = guest.sh(f"systemctl show --value --property MainPID {unit}").strip()
        facts = dict(line.split(":", 1) for line in guest.sh(f"cat /proc/{pid}/status").splitlines())
        assert facts["Uid"].split()[0] != "0" and int(facts["CapEff"], 16) == 0 and int(facts["CapBnd"], 16) == 0, facts
        assert facts["NoNewPrivs"].strip() == "1" and facts["Seccomp"].strip() == "2"
        memory_max = guest.sh(f"systemctl show --value --property MemoryMax {unit}").strip()
        assert memory_max.isdecimal(), memory_max
        print(f"{unit}: runs as user {facts['Uid'].split()[0]}, without capabilities")


def check_rings(guest):
    """The service of rings runs with three capabilities at most, and every user may connect to it."""
    guest.sh(f"systemctl enable --now {RINGS}")
    guest.wait_for("test -S /run/tributary/rings.socket")
    assert guest.sh("stat -c %a /run/tributary/rings.socket").strip() == "666"
    pid = guest.sh(f"systemctl show --value --property MainPID {RINGS}").strip()
    facts = dict(line.split(":", 1) for line in guest.sh(f"cat /proc/{pid}/status").splitlines())
    assert int(facts["CapBnd"], 16) & ~RINGS_CAPABILITIES == 0, facts
    assert facts["NoNewPrivs"].strip() == "1" and facts["Seccomp"].strip() == "2"
    print(f"{RINGS}: takes connections of all users")


def check_job(guest, name):
    """A job of a user goes through the node of the service, although it is on one machine."""
    user = "runuser -u person --"
    guest.sh("id person 2>/dev/null || useradd --create-home person")
    guest.sh("install -o person -m 600 /etc/tributary/tenants/physics.token /home/person/token")
    guest.sh("install -o person -m 644 /root/app.py /home/person/app.py")
    variables = " ".join(f"{variable}={value}" for variable, value in {
        **counts.MPIRUN, "TRIBUTARY_MANAGER": "127.0.0.1:7470", "TRIBUTARY_TOKEN_FILE": "/home/person/token",
        "TRIBUTARY_HOSTS": 2, "TRIBUTARY_BETWEEN_HOSTS": "tree"}.items())
    guest.sh(f"cd /home/person && {user} env {variables} tributary run --report /home/person/{name}.json -- "
             f"mpirun -n {counts.RANKS} python3 app.py {counts.ROUNDS}")
    print(counts.require(guest.root / "home" / "person" / f"{name}.json", "in_tree"))
    drained = guest.sh(f"{user} tributary drain --manager 127.0.0.1:7470 --token-file /home/person/token x", check=False)
    assert "needs the operator's token" in drained, drained


def check_upgrade(guest, package, version):
    """Services run on, as new processes; a changed setting stays."""
    guest.sh("echo '# ours' >>/etc/tributary/node.conf")
    before = guest.sh("systemctl show --value --property MainPID tributary-node")
    guest.bring(package)
    guest.sh(f"dpkg --force-confdef --force-confold -i /root/{package.name}")
    assert guest.sh("dpkg-query -W -f '${Version}' tributary") == version
    guest.wait_for("tributary status --manager 127.0.0.1:7470 --token-file /etc/tributary/token | grep 127.0.0.1:7471")
    assert guest.sh("systemctl show --value --property MainPID tributary-node") != before
    assert "# ours" in guest.sh("cat /etc/tributary/node.conf")
    print(f"upgraded to {version}: the services were restarted, a changed setting is kept")


def check_removal(guest):
    guest.sh("dpkg -r tributary")
    assert "# ours" in guest.sh("cat /etc/tributary/node.conf"), "settings stay until purge"
    assert not guest.sh("grep -lx tributary /proc/[0-9]*/comm", check=False), "no daemon runs on"
    guest.sh("dpkg -P tributary")
    left = guest.sh("find / -xdev -iname '*tributary*' -not -path '/proc/*' -not -path '/root/*' -not -path '/var/lib/dpkg/*' "
                    "-not -path '/var/log/*'")
    assert not left, left
    print("removed and purged: nothing is left")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--package", type=pathlib.Path, required=True)
    parser.add_argument("--base", type=pathlib.Path, required=True, help="where to keep the fresh Debian, as tar")
    options = parser.parse_args()
    assert os.geteuid() == 0, "mmdebstrap and systemd-nspawn are run as root here"
    build_base(options.base)
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        guest = Guest(options.base, folder)
        try:
            guest.bring(options.package)
            guest.bring(HERE / "app.py")
            guest.sh(f"dpkg -i /root/{options.package.name}")
            check_units(guest)
            check_services(guest)
            check_rings(guest)
            check_job(guest, "first")
            check_upgrade(guest, *next_version(options.package, folder))
            check_job(guest, "second")
            check_removal(guest)
        finally:
            guest.close()


if __name__ == "__main__":
    sys.exit(main())
