"""Goal: the structure check finds what it is for, and nothing else. Method: planted crates."""

import contextlib
import io
import pathlib
import tempfile
import unittest

import structure


class StructureTest(unittest.TestCase):
    """Each test writes a workspace of one crate, `planted`, and checks it."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)

    def plant(self, **files):
        """Writes the crate; `a__b` stands for src/a/b.rs."""
        source = self.root / "crates/planted/src"
        for name, text in {"lib": "", **files}.items():
            file = source / (name.replace("__", "/") + ".rs")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        (source.parent / "Cargo.toml").write_text("", encoding="utf-8")
        return structure.Crate(source.parent)

    def needs(self, **files):
        """Which file needs which, by their names."""
        crate = self.plant(**files)
        return {(crate.short(source), crate.short(target)) for source, target in crate.edges}

    def check(self, *arguments):
        """The exit code of the program and all it printed."""
        output = io.StringIO()
        with contextlib.redirect_stdout(output), contextlib.redirect_stderr(output):
            code = structure.main(["--root", str(self.root), *arguments])
        return code, output.getvalue()

    def test_circle_of_two_is_found_and_denied(self):
        self.plant(lib="mod a; mod b;", a="use crate::b::B; pub struct A(B);",
                   b="pub struct B; fn f() { crate::a::A::new() }")
        self.assertEqual(self.check("--deny", "")[0], 0)
        code, output = self.check("--deny", "planted")
        self.assertEqual(code, 1)
        self.assertIn("2 files need each other: a.rs, b.rs", output)
        self.assertEqual(self.check()[0], 1)
        self.assertIn("a.rs:1 needs `crate::b::B` of b.rs", output)

    def test_circle_of_three_is_found(self):
        crate = self.plant(lib="mod a; mod b; mod c;", a="use super::b; fn a() { b::b() }",
                           b="pub fn b() { super::c::c() }", c="use crate::a::a; pub fn c() { a() }")
        self.assertEqual(structure.circles(crate)[0], "3 files need each other: a.rs, b.rs, c.rs")

    def test_circle_through_a_reexport_is_found(self):
        needed = self.needs(lib="mod a; mod d; pub use d::e::E;", d="pub mod e;",
                            a="pub struct A; fn f() -> crate::E { crate::E }",
                            d__e="use crate::a::A; pub struct E; fn f(_: A) {}")
        self.assertEqual(needed, {("a.rs", "d/e.rs"), ("d/e.rs", "a.rs")})

    def test_glob_imports_are_followed(self):
        needed = self.needs(lib="mod a; mod b;", a="pub use crate::b::*; pub struct A;",
                            b="use super::a::*; pub struct B; fn f(_: A) {}")
        self.assertEqual(needed, {("b.rs", "a.rs")})

    def test_nested_imports_and_new_names_are_read(self):
        needed = self.needs(lib="mod a; mod b; mod c;", b="pub struct B;", c="pub fn c() {}",
                            a="use crate::{b::{self, B as Other}, c::c}; fn f(_: Other) { c() }")
        self.assertEqual(needed, {("a.rs", "b.rs"), ("a.rs", "c.rs")})

    def test_a_parent_that_only_declares_and_reexports_needs_nothing(self):
        needed = self.needs(lib="mod a;", a="mod child; pub use child::C; pub struct A;",
                            a__child="use super::A; pub struct C(A);")
        self.assertEqual(needed, {("a/child.rs", "a.rs")})

    def test_a_parent_that_uses_what_it_reexports_needs_it(self):
        needed = self.needs(lib="mod a;", a="mod child; pub use child::C; pub struct A(C);",
                            a__child="use super::A; pub struct C(A);")
        self.assertEqual(needed, {("a/child.rs", "a.rs"), ("a.rs", "a/child.rs")})

    def test_tests_comments_and_text_need_nothing(self):
        crate = self.plant(
            lib="mod a; mod b;\n#[cfg(test)]\nmod t;", t="use crate::a::A;", b="pub struct B;",
            a="// crate::b::B\n/* crate::b::B /* */ crate::b::B */\n"
              "const S: &str = \"crate::b::B\"; const R: &str = r#\"\" crate::b::B\"#;\n"
              "fn f<'a>(_: &'a str) -> char { '\"' }\npub struct A;\n"
              "#[cfg(test)]\nmod tests {\n    use crate::b::B;\n}\n")
        self.assertEqual(crate.edges, {})
        self.assertEqual((crate.lines, crate.lines_test), (7, 7))

    def test_code_behind_a_test_of_one_item_still_counts(self):
        needed = self.needs(lib="mod a; mod b;", b="pub struct B;",
                            a="#[cfg(test)] use x::Y; #[cfg(all(test, loom))] fn g() {} use crate::b::B;")
        self.assertEqual(needed, {("a.rs", "b.rs")})

    def test_a_long_crate_fails_unless_it_is_excused(self):
        self.plant(lib="pub fn f() {}\n" * 11)
        limits = ("--deny", "", "--lines-max", "10")
        self.assertEqual(self.check(*limits)[0], 1)
        self.assertEqual(self.check(*limits, "--long", "planted")[0], 0)

    def test_a_long_function_fails_and_a_long_test_does_not(self):
        body = " {\n" + "g();\n" * 8 + "}\n"
        limits = ("--function-lines-max", "10")
        self.plant(lib="pub fn f(\n    a: [u8; 3],\n) -> u8" + body)
        code, output = self.check(*limits)
        self.assertEqual(code, 1)
        self.assertIn("lib.rs:1: `f` has 12 lines, allowed are 10", output)
        self.plant(lib="pub fn f()" + body + "trait T { fn g(); }\n#[cfg(test)]\nmod tests { fn f()" + body * 2 + "}\n")
        self.assertEqual(self.check(*limits)[0], 0)

    def test_a_crate_that_is_not_there_is_an_error(self):
        self.plant()
        self.assertEqual(self.check("--deny", "absent")[0], 1)


if __name__ == "__main__":
    unittest.main()
