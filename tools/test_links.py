"""Goal: the link check fails on what is dead, and on nothing else. Method: planted pages."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import links


class LinksTest(unittest.TestCase):
    """Each test writes some pages and checks them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def check(self, pages, *arguments):
        """The exit code of the program and all it printed."""
        for name, text in pages.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = links.main(["--root", str(self.root), *arguments])
        return code, output.getvalue()

    def test_links_to_files_and_headings_that_exist_pass(self):
        code, output = self.check({
            "README.md": "# Top\n[a](docs/a.md#two-words--and-code) [b](#top) [c][c]\n\n[c]: docs/a.md\n"
                         "[web](https://example.invalid/x) ![drawing](docs/d.svg)\n",
            "docs/a.md": "## Two words & `and code`\n## Same\n## Same\n[back](../README.md#top) "
                         "[second](#same-1)\n",
            "docs/d.svg": "",
        })
        self.assertEqual(code, 0, output)

    def test_a_dead_file_is_found(self):
        code, output = self.check({"README.md": "text\n[a](docs/a.md)\n"})
        self.assertEqual(code, 1)
        self.assertIn("README.md:2: docs/a.md: there is no such file", output)

    def test_a_dead_anchor_is_found(self):
        code, output = self.check({"README.md": "# Top\n[a](#bottom)\n"})
        self.assertEqual(code, 1)
        self.assertIn("#bottom: there is no such heading", output)

    def test_a_dead_include_and_image_are_found(self):
        code, output = self.check({"docs/a.md": "{{#include ../B.md}}\n![x](x.svg)\n"})
        self.assertEqual(code, 1)
        self.assertIn("2 wrong", output)

    def test_code_holds_no_links(self):
        code, output = self.check({"README.md": "`[a](b.md)`\n```\n[a](b.md)\n# Not a heading\n```\n"})
        self.assertEqual(code, 0, output)

    def test_a_page_that_the_contents_lack_is_found(self):
        code, output = self.check({"docs/SUMMARY.md": "- [A](a.md)\n", "docs/a.md": "", "docs/b.md": ""})
        self.assertEqual(code, 1)
        self.assertIn("docs/b.md: docs/SUMMARY.md does not list", output)

    def test_built_pages_are_checked(self):
        pages = {"out/a.html": '<h1 id="top">A</h1><a href="b.html#x">b</a><img src="c.svg">',
                 "out/b.html": '<a href="a.html#top">a</a>', "out/c.svg": ""}
        code, output = self.check(pages, "--html", str(self.root / "out"))
        self.assertEqual(code, 1)
        self.assertIn("a.html:1: b.html#x: there is no such heading", output)
        self.assertIn("1 wrong", output)

    def test_no_page_at_all_is_an_error(self):
        self.assertEqual(self.check({})[0], 1)


if __name__ == "__main__":
    unittest.main()
