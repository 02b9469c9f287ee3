"""Goal: the documentation names what exists. Method: names of ARCHITECTURE.md are looked for in the
code, and the tables of knobs are compared with the table that the host library reads."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
CRATES = ROOT / "crates"
KNOBS = CRATES / "client/src/knobs.rs"

# Crates and modules that the documentation names and the code does not have yet.
NOT_YET = {"shm-collectives", "tuning", "swarm", "protocol-testing", "client::selection", "client::direct"}

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


class ArchitectureTest(unittest.TestCase):
    """ARCHITECTURE.md says where things are."""

    text = read("ARCHITECTURE.md")

    def is_expected(self, name):
        return any(name == other or name.startswith(f"{other}::") for other in NOT_YET)

    def test_modules_exist(self):
        names = set(NAME.findall(self.text))
        self.assertGreater(len(names), 15)
        for name in sorted(names):
            if not self.is_expected(name):
                self.assertIsNotNone(module_file(name), f"there is no module {name}")

    def test_functions_exist(self):
        calls = CALL.findall(self.text)
        self.assertGreaterEqual(len(calls), 5)
        for name, function in calls:
            if not self.is_expected(name):
                source = module_file(name).read_text(encoding="utf-8")
                self.assertTrue(re.search(rf"fn {function}\b", source), f"{name} has no {function}")

    def test_crates_are_those_of_the_table(self):
        listed = {cell.strip("`") for cell in first_cells(section(self.text, "The crates"))} - {"crate"}
        there = {file.parent.name for file in CRATES.glob("*/Cargo.toml")}
        self.assertEqual(listed - there - NOT_YET, set(), "listed, but not there")
        self.assertEqual(there - listed, set(), "there, but not listed")

    def test_files_of_the_shim_exist(self):
        row = next(row for row in self.text.splitlines() if "does an MPI call enter" in row)
        files = [name.rpartition("/")[2] for name in re.findall(r"`([\w/]+\.c)`", row)]
        self.assertGreaterEqual(len(files), 4)
        for name in files:
            self.assertTrue((CRATES / "mpi/shim" / name).exists(), name)

    def test_contributing_has_the_section_that_is_named(self):
        self.assertIn("\n## Add a collective\n", read("CONTRIBUTING.md"))


class KnobsTest(unittest.TestCase):
    """docs/knobs.md has the knobs of the host library."""

    def test_knobs_are_those_of_the_code(self):
        rows = re.findall(r'name: "(TRIBUTARY_\w+)",\s*default: "(\w*)"', KNOBS.read_text(encoding="utf-8"))
        code = dict(rows)
        page = {}
        for row in read("docs/knobs.md").splitlines():
            if row.startswith("| `TRIBUTARY_"):
                cells = [cell.strip() for cell in row.strip("|").split("|")]
                page[cells[0].strip("`")] = "" if cells[1] == "none" else cells[1]
        self.assertGreater(len(code), 20)
        renamed = self.renamed()
        # A knob that docs/names.md gives a new name, or removes, may still have the old one.
        for name, default in code.items():
            new = name if name in page else renamed.get(name)
            self.assertIsNotNone(new, f"docs/knobs.md lacks {name}")
            if name in page and (name, default) != ("TRIBUTARY_FALLBACK", "mesh"):
                self.assertEqual(page[name], default, name)
        known = set(code) | {renamed[name] for name in code if name in renamed}
        self.assertEqual(set(page) - known, set(), "on the page, but not in the code")

    def renamed(self):
        """Old names of knobs, and what docs/names.md says of each."""
        rows = [row.split("|") for row in section(read("docs/names.md"), "Knobs").splitlines()
                if row.startswith("| `TRIBUTARY_") and "=" not in row]
        return {old.strip(" `"): new.strip(" `") for _, old, new, *_ in rows}


if __name__ == "__main__":
    unittest.main()
