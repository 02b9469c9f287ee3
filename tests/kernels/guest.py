"""Virtual machines with emulated processors, which boot kernels of Debian: where kernels come from, what a guest has, and
how it runs. A guest has one process, a script, which says what it did on the console."""

import gzip
import json
import lzma
import os
import pathlib
import re
import shutil
import stat
import subprocess
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
# The kernels for virtual machines are small.
PACKAGE = "linux-image-cloud-amd64"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
TOOLS = ["apt-get", "apt-cache", "dpkg-deb", "qemu-system-x86_64", "busybox", "strip", "ldd"]
# What the guest prints before its own lines, so that they are found among the kernel's.
MARK = "tributary-guest"
# All that QEMU emulates but cmpxchg16b: with that of QEMU 7.2, Linux 6.12 crashed in 4 of 12 boots, without it in none.
CPU = "max,cx16=off"
# The lines of a console that are shown after a failure.
SHOWN = 40


class Failure(Exception):
    """Why a kernel was not tested, or failed; one text for people."""


def add_arguments(parser, kernels):
    """What all programs that boot kernels are told."""
    parser.add_argument("kernels", nargs="*", metavar="SUITE[:PACKAGE]", default=kernels,
                        help=f"default: {' '.join(kernels)}")
    parser.add_argument("--build", type=pathlib.Path, default=ROOT / "build/kernels",
                        help="folder for kernels and consoles (default %(default)s)")
    parser.add_argument("--mirror", help="of Debian; default: the first that apt has")
    parser.add_argument("--refresh", action="store_true", help="ask apt anew also for kernels that are there")
    parser.add_argument("--timeout", type=int, default=900, help="seconds for one kernel (default %(default)s)")


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


def unpack(package, folder, modules):
    """Writes the kernel of a Debian package, and those of these modules that it has, into `folder`."""
    with subprocess.Popen(["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE) as unpacked:
        with tarfile.open(fileobj=unpacked.stdout, mode="r|") as files:
            for file in files:
                # Since 6.19 it lies beside its modules.
                if found := first(r"^\./(?:boot/vmlinuz-|usr/lib/modules/(?=[^/]+/vmlinuz$))([^/]+)", file.name):
                    (folder / f"vmlinuz-{found}").write_bytes(files.extractfile(file).read())
                elif (found := first(r"/([^/]+)\.ko(?:\.xz)?$", file.name)) in modules:
                    content = files.extractfile(file).read()
                    (folder / f"{found}.ko").write_bytes(lzma.decompress(content) if file.name.endswith(".xz") else content)
    if unpacked.returncode != 0:
        raise Failure(f"{package} can't be unpacked")


def kernel_of(name, arguments, modules=()):
    """The file of a kernel, from what was downloaded before or from apt. Beside it lie those of these modules that are not in it."""
    suite, _, package = name.partition(":")
    folder = arguments.build.resolve() / name.replace(":", "_")
    kept = list(folder.glob("vmlinuz-*"))
    if kept and not arguments.refresh and (not modules or any(folder.glob("*.ko"))):
        return kept[0]
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    try:
        apt = Apt(folder / "apt", arguments.mirror or first_mirror(), suite)
        unpack(apt.download(apt.holder(package or PACKAGE)), folder, modules)
        kernel = next(folder.glob("vmlinuz-*"), None)
        if not kernel:
            raise Failure(f"{name} has no kernel in it")
        if modules and not any(folder.glob("*.ko")):
            # Since 6.19 they are in a package of their own.
            unpack(apt.download(kernel.name.replace("vmlinuz", "linux-modules", 1)), folder, modules)
        return kernel
    finally:
        shutil.rmtree(folder / "apt", ignore_errors=True)


def build_test(package, name):
    """The executable of a test of a crate."""
    cargo = os.environ.get("CARGO", "cargo")
    told = run(cargo, "test", "--locked", "-p", package, "--test", name, "--no-run", "--message-format=json", folder=ROOT)
    messages = [json.loads(line) for line in told.splitlines()]
    [built] = [message["executable"] for message in messages if message.get("executable") and message["target"]["name"] == name]
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


def stripped(program, folder):
    """A program without what is for debuggers."""
    target = folder / pathlib.Path(program).name
    run("strip", "-o", target, program)
    return target.read_bytes()


def write_initramfs(target, script, programs, contents):
    """Writes all files that the guest has: its script, programs at /bin by name and path, with their libraries, and others by path."""
    busybox = shutil.which("busybox")
    files = {"/init": script.encode(), "/bin/busybox": pathlib.Path(busybox).read_bytes(), **contents}
    files |= {f"/bin/{name}": stripped(program, target.parent) for name, program in programs.items()}
    for library in {library for program in (busybox, *programs.values()) for library in libraries_of(program)}:
        files[library] = pathlib.Path(library).read_bytes()
    folders = {"/proc", "/sys", "/dev", "/tmp"}
    folders |= {str(folder) for file in files for folder in pathlib.Path(file).parents}
    entries = [(folder[1:], stat.S_IFDIR | 0o755) for folder in sorted(folders - {"/"})]
    entries += [("dev/console", stat.S_IFCHR | 0o600, b"", (5, 1))]
    entries += [(file[1:], stat.S_IFREG | 0o755, content) for file, content in files.items()]
    archive = b"".join(packed(number, *entry) for number, entry in enumerate(entries, 1))
    target.write_bytes(gzip.compress(archive + packed(0, "TRAILER!!!", 0), compresslevel=1))


def boot(kernel, initramfs, console, timeout_s, *further):
    """Runs a virtual machine to its end, with further words for QEMU."""
    line = "console=ttyS0 loglevel=5 panic=-1 oops=panic"
    words = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", CPU, "-m", "1G", "-nodefaults",
             "-no-reboot", "-display", "none", "-serial", f"file:{console}", "-kernel", kernel, "-initrd", initramfs,
             "-append", line, *further]
    try:
        done = subprocess.run(words, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=timeout_s)
    except subprocess.TimeoutExpired as error:
        raise Failure(f"not done after {timeout_s} s, see {console}") from error
    if done.returncode != 0:
        raise Failure(f"no virtual machine: {done.stderr}")


def told_by(kernel, initramfs, arguments, *further):
    """Boots a kernel; what its console has, and where that is."""
    console = arguments.build.resolve() / f"{initramfs.stem.split('.')[0]}-{kernel.name.replace('vmlinuz-', '')}.console"
    console.unlink(missing_ok=True)
    boot(kernel, initramfs, console, arguments.timeout, *further)
    return console.read_text(encoding="utf-8", errors="replace").replace("\r", ""), console


def explained(failure, told, console):
    """A failure with the end of the console."""
    return Failure("\n".join([f"{failure}; the last of {console}:", *told.splitlines()[-SHOWN:]]))


def warning_in(release, told):
    """The verifier's finding against itself, if there is one; other warnings are failures."""
    own = first(r"verifier bug: (REG INVARIANTS VIOLATION)", told)
    if told.count("[ cut here ]") > bool(own):
        raise Failure(f"kernel {release} warns")
    return f"warns of its verifier: {own}" if own else ""


def require_tools(*further):
    """Ends with what this machine lacks."""
    if missing := [tool for tool in (*TOOLS, *further) if not shutil.which(tool)]:
        raise SystemExit(f"this machine lacks {', '.join(missing)}")


def run_all(headings, kernels, test):
    """Tests each kernel; prints the rows of a table and the failures. The exit code."""
    rows, failures = [headings], []
    for kernel in kernels:
        try:
            rows += test(kernel)
        except Failure as failure:
            failures.append(f"{kernel}: {failure}")
    widths = [max(len(row[at]) for row in rows) for at in range(len(headings))]
    for row in rows:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip())
    for failure in failures:
        print(f"FAILED {failure}")
    return int(bool(failures))
