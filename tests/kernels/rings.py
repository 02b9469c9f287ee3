#!/usr/bin/env python3
"""Goal: rings and sockets of AF_XDP bring datagrams past the network stack over adapters, VLANs and bonds, by programs at
traffic control, behind the driver and in it. Method: boots a kernel in a virtual machine of two emulated processors and two
virtio adapters that are wired to each other, and runs the tests of crates/rings there over links of each kind.

A kernel is named by a suite of Debian, whose newest one is taken, or by a suite and a package (see kernel_path.py). One before 6.6
has no traffic control that the service uses.
"""

import argparse
import re
import shutil
import sys

from guest import (MARK, Failure, add_arguments, build_test, explained, first, kernel_of, require_tools, run_all, told_by, warning_in,
                   write_initramfs)

KERNELS = ["bookworm-backports", "trixie-backports"]
# In the order in which they are loaded. What a kernel does not have as a module it has built in, or lacks.
MODULES = ("failover", "net_failover", "virtio", "virtio_ring", "virtio_pci_legacy_dev", "virtio_pci_modern_dev", "virtio_pci",
           "virtio_net", "llc", "stp", "mrp", "garp", "8021q", "tls", "bonding", "udp_tunnel", "ip6_udp_tunnel", "vxlan", "macvlan",
           "veth")
LINKS = {"veth": "", "virtio_net": "adapters:eth0,eth1", "VLAN on virtio_net": "vlan:eth0,eth1",
         "bond of virtio_net": "bond:eth0,eth1"}
TESTS = ("delivery", "port")
# Tools of the tests.
TOOLS = ("ip", "nsenter", "mount")
ADAPTERS = [word for end in (1, 2) for word in (
    "-netdev", f"hubport,id=end{end},hubid=1", "-device", f"virtio-net-pci,netdev=end{end},mac=52:54:00:93:00:0{end}")]
HEADINGS = ["kernel", "link", "test", "passed", "seconds"]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_arguments(parser, KERNELS)
    parser.set_defaults(timeout=3600)
    parser.add_argument("--link", choices=LINKS, action="append", help="links of this kind alone; may be repeated")
    parser.add_argument("--filter", default="", help="tests whose name contains this")
    return parser.parse_args()


def script(links, arguments):
    """What the guest does."""
    runs = [f"TRIBUTARY_TEST_LINK={LINKS[link]} " if LINKS[link] else "" for link in links]
    lines = [f"""echo "{MARK} begins {number} {test}"
{settings}/bin/{test} --test-threads=1 {arguments.filter}
echo "{MARK} ended $?"
""" for number, settings in enumerate(runs) for test in TESTS]
    return f"""#!/bin/busybox sh
export PATH=/bin CI=true RUST_BACKTRACE=1
/bin/busybox mount -t proc none /proc
/bin/busybox mount -t sysfs none /sys
/bin/busybox mount -t devtmpfs none /dev
for module in {' '.join(MODULES)}; do
    test ! -e /modules/$module.ko || /bin/busybox insmod /modules/$module.ko
done
echo "{MARK} release $(/bin/busybox uname -r)"
{''.join(lines)}/bin/busybox poweroff -f
"""


def judge(told, links):
    """Rows of the table: what the guest printed. Fails if a test did."""
    release = first(rf"{MARK} release (\S+)", told)
    if not release:
        raise Failure("the kernel did not start")
    warning_in(release, told)
    rows = []
    for number, link in enumerate(links):
        for test in TESTS:
            said = first(rf"{MARK} begins {number} {test}\n(?s:(.*?)){MARK} ended 0\n", told)
            if said is None or f"{MARK} ended" in said:
                raise Failure(f"kernel {release}, {link}: {test} failed")
            passed, seconds = re.search(r"(\d+) passed; .* finished in ([0-9.]+)s", said).groups()
            rows.append([release, link, test, passed, seconds])
    return rows


def test_kernel(name, programs, arguments):
    """Boots a kernel, and returns its rows of the table."""
    kernel = kernel_of(name, arguments, MODULES)
    modules = {f"/modules/{path.name}": path.read_bytes() for path in kernel.parent.glob("*.ko")}
    links = arguments.link or list(LINKS)
    initramfs = kernel.parent / "rings.cpio.gz"
    write_initramfs(initramfs, script(links, arguments), programs, modules)
    told, console = told_by(kernel, initramfs, arguments, "-smp", "2", *ADAPTERS)
    try:
        return judge(told, links)
    except Failure as failure:
        raise explained(failure, told, console) from failure


def main():
    arguments = parse_arguments()
    require_tools(*TOOLS)
    arguments.build.mkdir(parents=True, exist_ok=True)
    programs = {tool: shutil.which(tool) for tool in TOOLS}
    programs |= {test: build_test("tributary-rings", test) for test in TESTS}
    sys.exit(run_all(HEADINGS, arguments.kernels, lambda name: test_kernel(name, programs, arguments)))


if __name__ == "__main__":
    try:
        main()
    except Failure as failed:
        sys.exit(f"rings.py: {failed}")
