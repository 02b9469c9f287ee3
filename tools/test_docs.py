"""Goal: the documentation names what exists. Method: names of ARCHITECTURE.md and of the code map are looked for in the
code, its rooms are compared with the manifests, and the tables of knobs with the table that the host library reads."""

import pathlib
import re
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ROOT / "crates"
KNOBS = CRATES / "settings/src/knobs.rs"
PREFIX = "tributary-"

NAME = re.compile(r"`([a-z][a-z-]*(?:::[a-z_]+)+)`")
CALL = re.compile(r"`([a-z_]+(?:::[a-z_]+)+)` \(`(?:[A-Z]\w*::)?(\w+)`\)")


def read(path):
    return (ROOT / path).read_text(encoding="utf-8")


def section(text, heading):
    """What stands below a heading of second order."""
    return text.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def first_cells(text):
    """The first cell of each row of the tables in `text`."""
    return [row.split("|")[1].strip() for row in text.splitlines() if row.startswith("| ")]


def module_file(name):
    """The file of a module such as `client::tree`."""
    crate, *modules = name.split("::")
    place = CRATES / crate / "src" / "/".join(modules)
    for file in (place.with_suffix(".rs"), place / "mod.rs"):
        if file.exists():
            return file
    return None


def dependencies(crate):
    """The crates of this repository that `crate` is built with, for tests apart."""
    manifest = tomllib.loads((CRATES / crate / "Cargo.toml").read_text(encoding="utf-8"))
    tables = [manifest, *manifest.get("target", {}).values()]
    names = (name for table in tables for kind in ("dependencies", "build-dependencies") for name in table.get(kind, {}))
    return [name.removeprefix(PREFIX) for name in names if name.startswith(PREFIX)]


class ArchitectureTest(unittest.TestCase):
    """ARCHITECTURE.md and the code map say where things are."""

    text = read("ARCHITECTURE.md") + read("docs/code-map.md")

    def test_modules_exist(self):
        names = set(NAME.findall(self.text))
        self.assertGreater(len(names), 15)
        for name in sorted(names):
            self.assertIsNotNone(module_file(name), f"there is no module {name}")

    def test_functions_exist(self):
        calls = CALL.findall(self.text)
        self.assertGreaterEqual(len(calls), 5)
        for name, function in calls:
            source = module_file(name).read_text(encoding="utf-8")
            self.assertTrue(re.search(rf"fn {function}\b", source), f"{name} has no {function}")

    def test_crates_are_those_of_the_table(self):
        listed = {cell.strip("`") for cell in first_cells(section(self.text, "The crates"))} - {"crate"}
        there = {file.parent.name for file in CRATES.glob("*/Cargo.toml")}
        self.assertEqual(listed - there, set(), "listed, but not there")
        self.assertEqual(there - listed, set(), "there, but not listed")

    def test_crates_depend_on_their_room_and_those_below(self):
        rows = re.findall(r"^\| [\w ]+ \| (`[^|]+`) \| ", section(self.text, "Rooms"), re.MULTILINE)
        rooms = [re.findall(r"`([\w-]+)`", row) for row in rows]
        self.assertGreaterEqual(len(rooms), 5)
        height = {crate: -number for number, room in enumerate(rooms) for crate in room}
        there = {file.parent.name for file in CRATES.glob("*/Cargo.toml")}
        self.assertEqual(set(height), there, "crates with a room, and crates")
        for crate in sorted(there):
            for other in dependencies(crate):
                self.assertLessEqual(height[other], height[crate], f"{crate} depends on {other}, which is in a room above")

    def test_files_of_the_shim_exist(self):
        row = next(row for row in self.text.splitlines() if "does an MPI call enter" in row)
        files = [name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.c)`", row)]
        self.assertGreaterEqual(len(files), 4)
        for name in files:
            self.assertTrue((CRATES / "mpi/shim" / name).exists(), name)

    def test_contributing_has_the_section_that_is_named(self):
        self.assertIn("\n## Add a collective\n", read("CONTRIBUTING.md"))


class KnobsTest(unittest.TestCase):
    """docs/knobs.md has the knobs of the host library, with their defaults."""

    def test_knobs_are_those_of_the_code(self):
        rows = re.findall(r'name: "(TRIBUTARY_\w+)",\s*default: "(\w*)"', KNOBS.read_text(encoding="utf-8"))
        code = set(rows)
        self.assertGreater(len(code), 20)
        self.assertEqual(code - self.page(), set(), "in the code, but not on the page")
        self.assertEqual(self.page() - code, set(), "on the page, but not in the code")

    def page(self):
        """The knobs of docs/knobs.md with their defaults."""
        rows = re.findall(r"^\| `(TRIBUTARY_\w+)` \| (\w+) \|", read("docs/knobs.md"), re.MULTILINE)
        return {(name, "" if default == "none" else default) for name, default in rows}


if __name__ == "__main__":
    unittest.main()
