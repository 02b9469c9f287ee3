#!/usr/bin/env python3
"""Goal: the program of the kernel path does the same on every kernel that Debian has. Method: boots each kernel in a
virtual machine with an emulated processor, whose only process runs tests/differential/kernel.rs of crates/kernel-path.
It loads the program, compares it with user space packet by packet, and attaches it to an interface.

A kernel is named by a suite of Debian, whose newest one is taken, or by a suite and a package. They come by apt into
build/kernels and stay there. A kernel before 6.6 must be refused by name. The program is loaded and compared on it all
the same, but the kernel may reject it. A warning of a kernel fails its run, except that its verifier finds a fault of
its own: Linux 6.17 and 6.18 do, and go on.
"""

import argparse
import gzip
import json
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import time

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KERNELS = ["bookworm", "bookworm-backports", "trixie-backports"]
# The kernels for virtual machines are small, and have all that is needed without modules.
PACKAGE = "linux-image-cloud-amd64"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TOOLS = ["apt-get", "apt-cache", "dpkg-deb", "qemu-system-x86_64", "busybox", "strip", "ldd"]
# What the guest prints before its own lines, so that they are found among the kernel's.
MARK = "tributary-guest"
INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
echo "{MARK} release $(/bin/busybox uname -r)"
CI=true TRIBUTARY_DIFFERENTIAL_ANY_KERNEL=1 RUST_BACKTRACE=1 /bin/differential kernel:: --nocapture --test-threads=1
echo "{MARK} ended $?"
/bin/busybox poweroff -f
"""
# All that QEMU emulates but cmpxchg16b: with that of QEMU 7.2, Linux 6.12 crashed in 4 of 12 boots, without it in none.
CPU = "max,cx16=off"
# The lines of a console that are shown after a failure.
SHOWN = 40
HEADINGS = ["kernel", "product", "loaded", "instructions verified", "packets compared", "seconds", "note"]


class Failure(Exception):
    """Why a kernel was not tested, or failed; one text for people."""


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", nargs="*", metavar="SUITE[:PACKAGE]", default=KERNELS,
                        help=f"default: {' '.join(KERNELS)}")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/kernels",
                        help="folder for kernels and consoles (default %(default)s)")
    parser.add_argument("--mirror", help="of Debian; default: the first that apt has")
    parser.add_argument("--refresh", action="store_true", help="ask apt anew also for kernels that are there")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one kernel (default %(default)s)")
    return parser.parse_args()


def run(*command, folder=None):
    """A command's output; its failure is this test's."""
    words = [str(word) for word in command]
    done = subprocess.run(words, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode != 0:
        raise Failure(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


def first(pattern, text):
    """What the group of a pattern matches first, if it does."""
    found = re.search(pattern, text)
    return found[1] if found else None


def first_mirror():
    """Where apt gets packages of Debian from."""
    mirrors = run("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Label: Debian").split()
    if not mirrors:
        raise Failure("apt knows no mirror: name one with --mirror")
    return mirrors[0]


class Apt:
    """apt with one suite and state of its own: it neither sees nor changes what this machine has installed."""

    def __init__(self, folder, mirror, suite):
        self.folder = folder
        for part in ("state/lists/partial", "cache/archives/partial"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / "status").touch()
        sources = folder / "sources.list"
        sources.write_text(f"deb [arch=amd64 signed-by={KEYRING}] {mirror} {suite} main\n", encoding="utf-8")
        settings = {"Dir::Etc::SourceList": sources, "Dir::Etc::SourceParts": "-", "Dir::State": folder / "state",
                    "Dir::State::status": folder / "status", "Dir::Cache": folder / "cache",
                    "APT::Architecture": "amd64", "APT::Sandbox::User": "root", "Acquire::Languages": "none",
                    "Acquire::IndexTargets::deb::DEP-11::DefaultEnabled": "false"}
        self.options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        run("apt-get", *self.options, "update", "--error-on=any")

    def holder(self, package):
        """The package that has the kernel in it, on which those with shorter names depend."""
        pattern = r"Depends: (linux-(?:image|binary)-\S+)"
        while found := first(pattern, run("apt-cache", *self.options, "depends", "--important", package)):
            package = found
        return package

    def download(self, package):
        """The file of a package."""
        run("apt-get", *self.options, "download", package, folder=self.folder)
        return next(self.folder.glob(f"{package}_*.deb"))


def unpack_kernel(package, folder):
    """Writes the kernel of a Debian package into `folder`, and returns where."""
    kernel = None
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacked:
        with tarfile.open(fileobj=unpacked.stdout, mode="r|") as files:
            for file in files:
                # Since 6.19 it lies beside its modules.
                if found := first(r"^\./(?:boot/vmlinuz-|usr/lib/modules/(?=[^/]+/vmlinuz$))([^/]+)", file.name):
                    kernel = folder / f"vmlinuz-{found}"
                    kernel.write_bytes(files.extractfile(file).read())
    if not kernel or unpacked.returncode != 0:
        raise Failure(f"{package} has no kernel in it")
    return kernel


def kernel_of(name, arguments):
    """The file of a kernel, from what was downloaded before or from apt."""
    suite, _, package = name.partition(":")
    folder = arguments.build.resolve() / name.replace(":", "_")
    if not arguments.refresh and (kept := list(folder.glob("vmlinuz-*"))):
        return kept[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        apt = Apt(folder / "apt", arguments.mirror or first_mirror(), suite)
        return unpack_kernel(apt.download(apt.holder(package or PACKAGE)), folder)
    finally:
        shutil.rmtree(folder / "apt", ignore_errors=True)


def build_test():
    """The executable of the test."""
    cargo = os.environ.get("CARGO", "cargo")
    told = run(cargo, "test", "--locked", "-p", "tributary-kernel-path", "--test", "differential", "--no-run",
               "--message-format=json", folder=ROOT)
    messages = [json.loads(line) for line in told.splitlines()]
    [built] = [message["executable"] for message in messages if message.get("executable")
               and message["target"]["name"] == "differential"]
    return built


def libraries_of(program):
    """What the dynamic loader needs for a program, the loader included."""
    told = subprocess.run(["ldd", program], text=True, capture_output=True).stdout
    return re.findall(r"(/\S+) \(0x", told)


def packed(number, name, mode, content=b"", device=(0, 0)):
    """One file of an archive as cpio writes it and the kernel reads it ("newc")."""
    text = name.encode() + b"\0"
    fields = [number, mode, 0, 0, 1, 0, len(content), 0, 0, *device, len(text), 0]
    head = b"070701" + b"".join(b"%08X" % field for field in fields) + text
    return head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)


def write_initramfs(target, test):
    """Writes all files that the guest has."""
    busybox = shutil.which("busybox")
    run("strip", "-o", target.with_name("differential"), test)
    files = {"/init": INIT.encode(), "/bin/busybox": pathlib.Path(busybox).read_bytes(),
             "/bin/differential": target.with_name("differential").read_bytes()}
    for library in {*libraries_of(test), *libraries_of(busybox)}:
        files[library] = pathlib.Path(library).read_bytes()
    folders = {"/proc", "/sys", "/dev", "/tmp"}
    folders |= {str(folder) for file in files for folder in pathlib.Path(file).parents}
    entries = [(folder[1:], stat.S_IFDIR | 0o755) for folder in sorted(folders - {"/"})]
    entries += [("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))]
    entries += [(file[1:], stat.S_IFREG | 0o755, content) for file, content in files.items()]
    archive = b"".join(packed(number, *entry) for number, entry in enumerate(entries, 1))
    target.write_bytes(gzip.compress(archive + packed(0, "TRAILER!!!", 0), compresslevel=1))


def boot(kernel, initramfs, console, timeout_s):
    """Runs a virtual machine to its end."""
    line = "console=ttyS0 loglevel=5 panic=-1 oops=panic"
    words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", CPU, "-m", "1G", "-nodefaults",
             "-no-reboot", "-display", "none", "-serial", f"file:{console}", "-kernel", kernel, "-initrd", initramfs,
             "-append", line]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"not done after {timeout_s} s, see {console}") from error
    if done.returncode != 0:
        raise Failure(f"no virtual machine: {done.stderr}")


def judge(told):
    """A row of the table: what the guest printed. Fails if it did not do all."""
    release = first(rf"{MARK} release (\S+)", told)
    if not release:
        raise Failure("the kernel did not start")
    is_refused = re.search(r"\brefused: kernel \S+ is too old", told)
    if not is_refused and "has the program at an interface" not in told:
        raise Failure(f"kernel {release}: neither refused by name nor attached")
    row = [release, "refused" if is_refused else "attached"]
    # What the verifier says last, before its account of times.
    rejected = first(r"the kernel does not take the program: (?s:.*)\n(.*)\nverification time", told)
    if is_refused and rejected and "1 passed; 1 failed" in told:
        return [*row, "no", "-", "-", rejected.strip()]
    instructions = first(r"Some\((\d+)\) instructions verified", told)
    packets = first(r"Seen \{ packets: (\d+),", told)
    if first(rf"{MARK} ended (\d+)", told) != "0" or not instructions or not packets:
        loaded = f"loaded, {instructions} instructions verified" if instructions else "not loaded"
        raise Failure(f"kernel {release}: {loaded}, {packets or 'no'} packets compared")
    return [*row, "yes", f"{int(instructions):,}", f"{int(packets):,}", warning_in(release, told)]


def warning_in(release, told):
    """The verifier's finding against itself, if there is one; other warnings are failures."""
    own = first(r"verifier bug: (REG INVARIANTS VIOLATION)", told)
    if told.count("[ cut here ]") > bool(own):
        raise Failure(f"kernel {release} warns")
    return f"warns of its verifier: {own}" if own else ""


def test_kernel(name, initramfs, arguments):
    """Boots a kernel, and returns its row of the table."""
    kernel = kernel_of(name, arguments)
    console = arguments.build.resolve() / f"{kernel.name.replace('vmlinuz-', '')}.console"
    console.unlink(missing_ok=True)
    started = time.monotonic()
    boot(kernel, initramfs, console, arguments.timeout)
    seconds = time.monotonic() - started
    told = console.read_text(encoding="utf-8", errors="replace").replace("\r", "")
    try:
        *row, note = judge(told)
    except Failure as failure:
        raise Failure("\n".join([f"{failure}; the last of {console}:", *told.splitlines()[-SHOWN:]])) from failure
    return [*row, f"{seconds:.0f}", note]


def main():
    arguments = parse_arguments()
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        sys.exit(f"run.py: this machine lacks {', '.join(missing)}")
    arguments.build.mkdir(parents=True, exist_ok=True)
    initramfs = arguments.build.resolve() / "initramfs.cpio.gz"
    try:
        write_initramfs(initramfs, build_test())
    except Failure as failure:
        sys.exit(f"run.py: {failure}")
    rows, failures = [HEADINGS], []
    for name in arguments.kernels:
        try:
            rows.append(test_kernel(name, initramfs, arguments))
        except Failure as failure:
            failures.append(f"{name}: {failure}")
    widths = [max(len(row[at]) for row in rows) for at in range(len(HEADINGS))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    for failure in failures:
        print(f"FAILED {failure}")
    sys.exit(bool(failures))


if __name__ == "__main__":
    main()
