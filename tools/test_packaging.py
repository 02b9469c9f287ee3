"""What packaging/ says of the daemons must be so, and all statements of the licence must agree."""

import json
import pathlib
import re
import tomllib
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
METRIC = re.compile(r"\btributary_(?:node|manager)_\w+")


def metrics_of_the_daemons():
    """Every metric that the daemons' source registers."""
    files = (ROOT / "crates/daemon/src").rglob("*.rs")
    return {name for file in files for name in re.findall(r'"(tributary_(?:node|manager)_\w+)"', file.read_text())}


class Dashboard(unittest.TestCase):
    def test_every_metric_is_exported(self):
        dashboard = json.loads((ROOT / "packaging/grafana.json").read_text())
        queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
        queries += [each["query"] for each in dashboard["templating"]["list"]]
        used = {name for query in queries for name in METRIC.findall(query)}
        self.assertGreater(len(used), 15)
        self.assertEqual(used - metrics_of_the_daemons(), set())

    def test_every_panel_asks_something(self):
        dashboard = json.loads((ROOT / "packaging/grafana.json").read_text())
        numbers = [panel["id"] for panel in dashboard["panels"]]
        self.assertEqual(len(numbers), len(set(numbers)))
        self.assertTrue(all(METRIC.search(target["expr"]) for panel in dashboard["panels"] for target in panel["targets"]))


class Licence(unittest.TestCase):
    def test_every_statement_names_the_same_licence(self):
        statement = tomllib.loads((ROOT / "REUSE.toml").read_text())["annotations"]
        self.assertEqual([each["path"] for each in statement], ["**"])
        licence = statement[0]["SPDX-License-Identifier"]
        debian = (ROOT / "packaging/debian/copyright").read_text()
        self.assertEqual(tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["license"], licence)
        self.assertIn(f"\nlicense: {licence}\n", (ROOT / "CITATION.cff").read_text())
        self.assertIn(f"\nCopyright: {statement[0]['SPDX-FileCopyrightText']}\nLicense: {licence}\n", debian)
        self.assertEqual((ROOT / f"LICENSES/{licence}.txt").read_text(), (ROOT / "LICENSE").read_text())


if __name__ == "__main__":
    unittest.main()
