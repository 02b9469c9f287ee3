"""Goal: the check of words fails on what it is for, and on nothing else. Method: planted pages."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import words


class WordsTest(unittest.TestCase):
    """Each test writes some pages and checks them."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def check(self, pages):
        """The exit code of the program and all it printed."""
        for name, text in pages.items():
            file = self.root / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = words.main(["--root", str(self.root)])
        return code, output.getvalue()

    def assert_passes(self, text):
        code, output = self.check({"docs/a.md": text})
        self.assertEqual(code, 0, output)

    def assert_fails(self, text, at, *reasons):
        code, output = self.check({"docs/a.md": text})
        self.assertEqual(code, 1, text)
        for reason in reasons:
            self.assertIn(f"docs/a.md:{at}: ", output)
            self.assertIn(reason, output)

    def test_plain_words_pass(self):
        self.assert_passes("# A title\nAn aggregator ends. The member who waits sends again.\n\n- A host is lost.\n")

    def test_dead_words_fail(self):
        self.assert_fails("Text.\n\nIt goes over the mesh.\n", 3, "`mesh` is a dead word: direct links")
        self.assert_fails("Ranks poll in\nvain.\n", 1, "`in vain` is a dead word")
        self.assert_fails("The MPI beneath carries it.\n", 1, "the underlying MPI")

    def test_headless_clauses_fail_wherever_a_sentence_begins(self):
        for text in ("Who finds the tree lost ends it.\n", "It ends. Who waits hears.\n", "- Whoever waits hears.\n",
                     "It ends,\nwhoever asks.\n", "| a | Who waits hears. |\n", "**Who has it** decides.\n"):
            self.assert_fails(text, 1, "has no head")

    def test_questions_and_relative_clauses_pass(self):
        self.assert_passes("Who is late? Ask the manager. A user who waits sees it. It says who waits.\n")

    def test_nodes_fail_unless_they_are_aggregation_nodes(self):
        self.assert_fails("A node dies.\n", 1, "`node` may be taken for a host")
        self.assert_fails("An aggregation node dies.\n\nNodes come back.\n", 3, "`Nodes`")
        self.assert_passes("An aggregation node dies, and other aggregation\nnodes live. `tributary node` and `in_host`"
                           " are code, and so is [this](control.md#a-nodes-life).\n\n```\nnode\n```\n")

    def test_a_page_may_declare_what_a_node_is(self):
        self.assert_passes("# Format\n\n*Node* on this page means\nan aggregation node.\n\nA node dies.\n")

    def test_code_is_not_checked(self):
        self.assert_passes("Say `mesh` and `Whoever`, or `tributary node\n--kernel auto`.\n\n"
                           "```\nmesh, whoever, node\n```\n")

    def test_names_of_files_are_checked_and_texts_of_decisions_are_not(self):
        text = "Whoever sends over the mesh is a node.\n"
        code, output = self.check({"README.md": "A page.\n", "docs/decisions/0001-paths.md": text})
        self.assertEqual(code, 0, output)
        code, output = self.check({"docs/decisions/0002-ways-by-length.md": text})
        self.assertEqual(code, 1)
        self.assertIn("0002-ways-by-length.md: the name has the dead word `ways`", output)

    def check_code(self, text, name="crates/a/src/lib.rs"):
        """The exit code for a workspace with one file of code, and all that is printed."""
        return self.check({"README.md": "A page.\n", name: text})

    def assert_code_fails(self, text, at, reason, name="crates/a/src/lib.rs"):
        code, output = self.check_code(text, name)
        self.assertEqual(code, 1, text)
        self.assertIn(f"{name}:{at}: ", output)
        self.assertIn(reason, output)

    def test_dead_words_in_comments_fail(self):
        self.assert_code_fails("fn f() {\n    // It polls in\n    // vain.\n}\n", 2, "`in vain` is a dead word")
        self.assert_code_fails("/// A ledger.\nstruct L;\n", 1, "`ledger` is a dead word")
        self.assert_code_fails("int f;\n/*\n * Of the\n * ledger.\n */\n", 3, "`ledger`", "crates/a/shim/a.c")
        self.assert_code_fails("/* One line. */\nint f; \n/* Polls in vain. */\n", 3, "`in vain`", "fuzz/a.h")

    def test_headless_clauses_in_comments_fail(self):
        self.assert_code_fails("    /// Who has them.\n    from: usize,\n", 1, "has no head")
        self.assert_code_fails("//! First.\n//!\n//! It ends, whoever\n//! asks.\n", 3, "`whoever` has no head")
        self.assertEqual(self.check_code("// Who is late? The host knows who waits.\n")[0], 0)

    def test_headless_names_of_functions_fail(self):
        self.assert_code_fails("mod tests {\n    fn who_asks_is_told() {}\n}\n", 2, "`who_asks_is_told` has no head")
        self.assert_code_fails("\npub(crate) fn whoever_is_late_waits() {}\n", 2, "has no head")
        self.assertEqual(self.check_code("fn a_rank_that_asks_is_told_who_is_late() {}\nfn whole() {}\n")[0], 0)

    def test_participles_as_names_of_functions_fail(self):
        self.assert_code_fails("\n    pub(super) fn carried(&self) -> u32 {\n", 2, "`carried` is a participle")
        self.assert_code_fails("const fn held<T>(\n    at: T,\n) -> T {\n", 1, "`held` is a participle")
        for fine in ("fn is_carried(&self) -> bool {", "fn carried(&self) -> bool {", "fn named(a: u8) -> Option<Self> {",
                     "fn feed(&mut self) {", "fn carry(&self) {", "#[cfg(test)]\nmod tests {\n    fn told() {}\n}"):
            self.assertEqual(self.check_code(fine + "\n")[0], 0, fine)

    def test_nodes_fail_in_comments(self):
        for text in ("// An inter-node link.\n", "// The ranks of a\n// node.\n", "// Eight per compute node.\n"):
            self.assert_code_fails(text, 1, "a machine with ranks is a host")
        self.assert_code_fails("// The node reduces.\n", 1, "`node`")
        self.assertEqual(self.check_code("// An aggregation node reduces, as `Node` does.\n")[0], 0)
        self.assertEqual(self.check_code("// The node above.\n", "crates/topology/src/tree.rs")[0], 0)

    def test_code_beside_comments_is_not_checked(self):
        text = "let ledger = \"whoever polls in vain\"; // in vain\n// Says `in vain`.\nfn ledger() {}\n"
        code, output = self.check_code(text)
        self.assertEqual(code, 0, output)
        self.assertEqual(self.check_code("int x = a * ledger\n * whoever;\n", "crates/a/a.c")[0], 0)

    def test_a_workspace_without_pages_fails(self):
        self.assertEqual(self.check({})[0], 1)

    def test_every_exception_is_a_page(self):
        root = pathlib.Path(__file__).resolve().parent.parent
        for name in (*words.WAIVED, *words.COMMENT_TERMS):
            self.assertTrue((root / name).exists(), name)


if __name__ == "__main__":
    unittest.main()
