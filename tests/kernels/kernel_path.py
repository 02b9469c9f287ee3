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
import re
import sys
import time

from guest import MARK, Failure, add_arguments, build_test, explained, first, kernel_of, require_tools, run_all, told_by, warning_in, write_initramfs

KERNELS = ["bookworm", "bookworm-backports", "trixie-backports"]
INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
echo "{MARK} release $(/bin/busybox uname -r)"
CI=true TRIBUTARY_DIFFERENTIAL_ANY_KERNEL=1 RUST_BACKTRACE=1 /bin/differential kernel:: --nocapture --test-threads=1
echo "{MARK} ended $?"
/bin/busybox poweroff -f
"""
HEADINGS = ["kernel", "product", "loaded", "instructions verified", "packets compared", "seconds", "note"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, KERNELS)
    return parser.parse_args()


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


def test_kernel(name, initramfs, arguments):
    """Boots a kernel, and returns its rows of the table."""
    kernel = kernel_of(name, arguments)
    started = time.monotonic()
    told, console = told_by(kernel, initramfs, arguments)
    seconds = time.monotonic() - started
    try:
        *row, note = judge(told)
    except Failure as failure:
        raise explained(failure, told, console) from failure
    return [[*row, f"{seconds:.0f}", note]]


def main():
    arguments = parse_arguments()
    require_tools()
    arguments.build.mkdir(parents=True, exist_ok=True)
    initramfs = arguments.build.resolve() / "kernel-path.cpio.gz"
    write_initramfs(initramfs, INIT, {"differential": build_test("tributary-kernel-path", "differential")}, {})
    sys.exit(run_all(HEADINGS, arguments.kernels, lambda name: test_kernel(name, initramfs, arguments)))


if __name__ == "__main__":
    try:
        main()
    except Failure as failed:
        sys.exit(f"kernel_path.py: {failed}")
