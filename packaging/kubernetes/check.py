#!/usr/bin/env python3
"""Checks tributary.yaml against the schema of Kubernetes, and that its containers' options are the program's."""

import argparse
import pathlib
import subprocess

import kubernetes_validate
import yaml

MANIFEST = pathlib.Path(__file__).with_name("tributary.yaml")
VERSIONS = ("1.28", "1.34")
KINDS = ["Service", "Deployment", "DaemonSet"]


def options_of(arguments):
    return {argument.split("=")[0] for argument in arguments if argument.startswith("--")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tributary", required=True, help="the program")
    program = parser.parse_args().tributary
    items = yaml.safe_load(MANIFEST.read_text())["items"]
    assert [item["kind"] for item in items] == KINDS
    for version in VERSIONS:
        for item in items:
            kubernetes_validate.validate(item, version, strict=True)
    for item in items[1:]:
        [container] = item["spec"]["template"]["spec"]["containers"]
        command = container["args"][0]
        text = subprocess.run([program, command, "--help"], check=True, capture_output=True, text=True).stdout
        unknown = {option for option in options_of(container["args"]) if f"{option} " not in text}
        assert not unknown, (command, unknown)
    print(f"{len(items)} objects fit the schemas of Kubernetes {' and '.join(VERSIONS)}")


if __name__ == "__main__":
    main()
