#!/usr/bin/env python3
"""Lists the crates that are compiled into our programs and libraries, with their licences and the licences' texts.

    third_party.py PACKAGE... > third-party.txt
"""

import json
import pathlib
import subprocess
import sys

TEXTS = ("LICENSE*", "LICENCE*", "COPYING*", "license*", "COPYRIGHT*", "NOTICE*")


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def host():
    lines = output_of("rustc", "-vV").splitlines()
    return next(line.removeprefix("host: ") for line in lines if line.startswith("host: "))


def crates_below(names, graph):
    """The packages that `names` are compiled with, themselves and other members left out."""
    nodes = {node["id"]: node for node in graph["resolve"]["nodes"]}
    packages = {package["id"]: package for package in graph["packages"]}
    waiting = [identity for identity in graph["workspace_members"] if packages[identity]["name"] in names]
    assert len(waiting) == len(names), f"not all of {names} are crates of this workspace"
    found = set()
    while waiting:
        identity = waiting.pop()
        if identity in found:
            continue
        found.add(identity)
        waiting += [edge["pkg"] for edge in nodes[identity]["deps"]
                    if any(kind["kind"] is None for kind in edge["dep_kinds"])]
    others = found - set(graph["workspace_members"])
    return sorted((packages[identity] for identity in others), key=lambda package: (package["name"], package["version"]))


def texts_of(package):
    folder = pathlib.Path(package["manifest_path"]).parent
    files = sorted({file for pattern in TEXTS for file in folder.glob(pattern) if file.is_file()})
    return [file.read_text(errors="replace").strip() for file in files]


def main(names):
    graph = json.loads(output_of("cargo", "metadata", "--format-version", "1", "--locked", "--filter-platform", host()))
    packages = crates_below(names, graph)
    print("Crates of others that are linked into Tributary.\n")
    for package in packages:
        print(f"{package['name']} {package['version']}: {package['license'] or package['license_file']}")
    # Most crates have the same texts.
    having = {}
    for package in packages:
        for text in texts_of(package):
            having.setdefault(text, []).append(package["name"])
    for text, names_of in having.items():
        print(f"\n\n==== {', '.join(dict.fromkeys(names_of))} ====\n\n{text}")


if __name__ == "__main__":
    main(sys.argv[1:])
