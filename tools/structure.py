#!/usr/bin/env python3
"""Checks the structure of the crates: circles of imports between files, and size.

Two or more files of a crate form a circle if each needs an item that the next one defines and the
last needs one that the first defines. Re-exports are followed to the file that defines the item. A
`mod` declaration, or a re-export that its own file does not use, needs nothing. Code that is only
compiled for tests does not count.

The check fails if a crate has a circle, if a crate is longer than --lines-max without its tests, or if a function is longer than
--function-lines-max. Method calls name no file, so the check does not see them.
"""

import argparse
import pathlib
import re
import sys

LINES_MAX = 9000
# The longest are tables: a line for each kind of message, or each setting.
FUNCTION_LINES_MAX = 85

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*)
  | (?P<comment>/\*)
  | (?P<raw>b?c?r(?P<hashes>\#*)"(?:.|\n)*?"(?P=hashes))
  | (?P<string>[bc]?"(?:[^"\\]|\\(?:.|\n))*")
  | (?P<char>b?'(?:[^'\\\n]|\\[^\n][^'\n]*)')
  | (?P<lifetime>'[A-Za-z_]\w*)
  | (?P<word>(?:r\#)?[A-Za-z_]\w*)
  | (?P<number>\d\w*)
  | (?P<mark>::|.)
""", re.VERBOSE)

OPENING = {"{": "}", "(": ")", "[": "]"}
QUALIFIERS = {"pub", "unsafe", "async", "const", "extern", "default"}
DEFINES = {"fn", "struct", "enum", "union", "trait", "type", "const", "static"}
ENDS_AT_SEMICOLON = {"use", "const", "static", "type"}


class Token(str):
    """A word or mark of Rust, and the line it is on."""

    def __new__(cls, text, line):
        self = super().__new__(cls, text)
        self.line = line
        return self


def tokens_of(text):
    """The words and marks of a source file, without comments; a literal becomes the mark `"`."""
    found, place, line = [], 0, 1
    while place < len(text):
        match = TOKEN.match(text, place)
        end = comment_end(text, place) if match["comment"] else match.end()
        if match["word"] or match["mark"]:
            found.append(Token(match.group(), line))
        elif not match["skip"] and not match["comment"]:
            found.append(Token('"', line))
        line += text.count("\n", place, end)
        place = end
    return found


def comment_end(text, place):
    """Where the block comment ends that begins at `place`; such comments nest."""
    depth = 0
    for mark in re.finditer(r"/\*|\*/", text[place:]):
        depth += 1 if mark.group() == "/*" else -1
        if depth == 0:
            return place + mark.end()
    return len(text)


def closing(tokens, place):
    """The place of the mark that closes the bracket at `place`."""
    depth = 0
    for at in range(place, len(tokens)):
        if tokens[at] in OPENING:
            depth += 1
        elif tokens[at] in OPENING.values():
            depth -= 1
            if depth == 0:
                return at
    return len(tokens) - 1


def attributes_end(tokens, place):
    """The first place behind the attributes that begin at `place`."""
    while place < len(tokens) and tokens[place] == "#":
        place += 2 if tokens[place + 1] == "!" else 1
        place = closing(tokens, place) + 1
    return place


def keyword_place(tokens, place):
    """The place of the word that says what the item at `place` is, behind visibility and the like."""
    while place < len(tokens):
        if tokens[place] == "pub" and place + 1 < len(tokens) and tokens[place + 1] == "(":
            place = closing(tokens, place + 1) + 1
        elif tokens[place] == '"':  # the ABI of an extern function
            place += 1
        elif tokens[place] in QUALIFIERS and not is_value(tokens, place):
            place += 1
        else:
            return place
    return place


def is_value(tokens, place):
    """Whether the `const` at `place` begins a constant, not a constant function."""
    return tokens[place] == "const" and tokens[place + 1] not in ("fn", "unsafe", "extern", "async")


def item_end(tokens, place):
    """The first place behind the item, member or statement that begins at `place`."""
    keyword = keyword_place(tokens, place)
    to_semicolon = keyword < len(tokens) and tokens[keyword] in ENDS_AT_SEMICOLON
    at = place
    while at < len(tokens):
        if tokens[at] == ";" or (tokens[at] == "," and not to_semicolon and at > keyword):
            return at + 1
        if tokens[at] in OPENING.values():
            return at
        if tokens[at] in OPENING:
            braces = tokens[at] == "{"
            at = closing(tokens, at)
            if braces and not to_semicolon:
                return at + 1
        at += 1
    return at


def is_test_attribute(tokens, place):
    """Whether the attribute at `place` keeps what follows for tests alone."""
    text = "".join(tokens[place:closing(tokens, place + 1) + 1])
    return re.match(r"#\[cfg\((test\)|all\((.*,)?test[,)])", text) is not None


def without_tests(tokens):
    """The tokens that remain outside tests, and the lines and modules that tests take."""
    kept, lines, modules, at = [], set(), set(), 0
    while at < len(tokens):
        if tokens[at] == "#" and at + 1 < len(tokens) and tokens[at + 1] == "[" \
                and is_test_attribute(tokens, at):
            start = attributes_end(tokens, at)
            end = item_end(tokens, start)
            keyword = keyword_place(tokens, start)
            if tokens[keyword] == "mod" and tokens[end - 1] == ";":
                modules.add(str(tokens[keyword + 1]))
            lines.update(range(tokens[at].line, tokens[end - 1].line + 1))
            at = end
        else:
            kept.append(tokens[at])
            at += 1
    return kept, lines, modules


class Module:
    """What a module defines, imports and needs."""

    def __init__(self, file, parent):
        self.file, self.parent = file, parent
        self.children, self.defined, self.globs = {}, set(), []
        self.imports = {}  # name: (path, line, whether it is a re-export)
        self.bodies = []  # tokens of the items

    def read(self, tokens):
        """Takes in the items of a module."""
        at = 0
        while at < len(tokens):
            start = attributes_end(tokens, at)
            if start >= len(tokens):
                return
            end = max(item_end(tokens, start), start + 1)
            self.take_item(tokens[start:end])
            at = end

    def take_item(self, item):
        """Takes in one item."""
        place = keyword_place(item, 0)
        keyword = item[place] if place < len(item) else ""
        if keyword == "use":
            for path, name in use_paths(item[place + 1:]):
                self.take_import(path, name, item[0].line, item[0] == "pub")
        elif keyword == "mod":
            if item[-1] != ";":
                child = self.children[str(item[place + 1])] = Module(self.file, self)
                child.read(item[place + 3:-1])
        else:
            if keyword in DEFINES:
                name = item[place + 2] if item[place + 1] in ("mut", "ref") else item[place + 1]
                self.defined.add(str(name))
            elif keyword == "macro_rules":
                self.defined.add(str(item[place + 2]))
            self.bodies.append(item)
            for inner in inner_uses(item):
                for path, name in use_paths(inner):
                    self.take_import(path, name, inner[0].line, False)

    def take_import(self, path, name, line, is_export):
        """Takes in one import."""
        if name == "*":
            self.globs.append((path, line, is_export))
        elif name == "_":
            self.imports[f"_ {line} {path}"] = (path, line, False)
        else:
            self.imports[name] = (path, line, is_export)


def inner_uses(item):
    """The imports inside an item's blocks, each without the word `use`."""
    for at, token in enumerate(item):
        if token == "use" and at > 0 and item[at - 1] in ("{", "}", ";", "]"):
            end = next((place for place in range(at, len(item)) if item[place] == ";"), None)
            if end is not None:
                yield item[at + 1:end + 1]


def use_paths(tokens, before=()):
    """Every (path, name) that the import brings in; `tokens` begin behind `use`."""
    path, at = list(before), 0
    while at < len(tokens) and tokens[at] not in (";", ",", "}"):
        if tokens[at] == "{":
            end = closing(tokens, at)
            for part in parts_of(tokens[at + 1:end]):
                yield from use_paths(part, path)
            return
        if tokens[at] == "*":
            yield tuple(path), "*"
            return
        if tokens[at] == "as":
            yield tuple(path), str(tokens[at + 1])
            return
        if tokens[at] not in ("::", "$") and not (tokens[at] == "self" and path):
            path.append(str(tokens[at]))
        at += 1
    if path:
        yield tuple(path), path[-1]


def parts_of(tokens):
    """The parts of a list that are separated by commas outside brackets."""
    part, at = [], 0
    while at < len(tokens):
        if tokens[at] == ",":
            yield part
            part = []
        elif tokens[at] in OPENING:
            end = closing(tokens, at)
            part += tokens[at:end]
            at = end
            part.append(tokens[at])
        else:
            part.append(tokens[at])
        at += 1
    if part:
        yield part


def body_paths(item):
    """Every path in an item's body, with its line: `crate::a::b` as ("crate", "a", "b")."""
    at = 0
    while at < len(item):
        token = item[at]
        begins = (token[0].isalpha() or token[0] == "_") and (at == 0 or item[at - 1] not in (".", "::"))
        if not begins:
            at += 1
            continue
        path = [str(token)]
        while at + 2 < len(item) and item[at + 1] == "::" and re.match(r"[A-Za-z_]", item[at + 2]):
            path.append(str(item[at + 2]))
            at += 2
        yield tuple(path), token.line
        at += 1


class Crate:
    """The files of one crate, its modules and what they need of each other."""

    def __init__(self, folder):
        self.folder = folder
        self.name = folder.name
        self.source = folder / "src"
        self.lines = 0  # without tests
        self.lines_test = 0
        self.functions = []  # (file, first line, name, lines) of each function
        self.edges = {}  # (file, file): (line, path) of the first need
        self.root = None
        for name in ("lib.rs", "main.rs"):
            if (self.source / name).exists():
                self.root = self.load(self.source / name, None, self.source)
                self.connect(self.root)
                break
        for file in sorted(folder.rglob("*.rs")):
            self.lines_test += line_count(file)
        self.lines_test -= self.lines

    def load(self, file, parent, below):
        """Reads a module's file and those of its children that are no tests."""
        text = file.read_text(encoding="utf-8")
        tokens, test_lines, test_modules = without_tests(tokens_of(text))
        self.lines += len(text.splitlines()) - len(test_lines)
        self.functions += [(file, *function) for function in functions_of(tokens)]
        module = Module(file, parent)
        module.read(tokens)
        for name in module_names(tokens):
            for place in (below / f"{name}.rs", below / name / "mod.rs"):
                if place.exists() and name not in test_modules:
                    module.children[name] = self.load(place, module, below / name)
        return module

    def connect(self, module):
        """Finds what `module` and its children need."""
        words = {str(word) for item in module.bodies for word in item}
        for name, (path, line, is_export) in module.imports.items():
            target = self.resolve(module, path)
            if target and (name in words or not is_export):
                if not isinstance(target, Module):
                    self.need(module, target[0], line, path)
        for item in module.bodies:
            for path, line in body_paths(item):
                self.need_path(module, path, line)
        for child in module.children.values():
            self.connect(child)

    def need_path(self, module, path, line):
        """Records what a path in a body needs."""
        if len(path) == 1:
            if path[0] in module.defined or path[0] in module.imports:
                return
            for glob, _, _ in module.globs:
                target = self.resolve(module, (*glob, path[0]), exact=True)
                if target and not isinstance(target, Module):
                    self.need(module, target[0], line, path)
            return
        target = self.resolve(module, path)
        if target and not isinstance(target, Module):
            self.need(module, target[0], line, path)

    def need(self, module, definer, line, path):
        """Records that `module` needs an item of `definer`."""
        if definer.file != module.file:
            self.edges.setdefault((module.file, definer.file), (line, "::".join(path)))

    def resolve(self, module, path, exact=False, seen=frozenset()):
        """What `path` names in `module`: a Module, (the module that defines it,), or None.

        A name that its module does not define (a macro makes it) is taken for the module's own,
        unless `exact`.
        """
        if (module, path) in seen:
            return None
        seen |= {(module, path)}
        place, rest = self.start(module, path, seen)
        while isinstance(place, Module) and rest:
            step, rest = rest[0], rest[1:]
            if step == "super":
                place = place.parent
            elif step != "self":
                place = self.lookup(place, step, seen) or (None if exact else (place,))
        return place

    def start(self, module, path, seen):
        """Where a path begins, and what is left of it."""
        first = path[0]
        if first == "crate":
            return self.root, path[1:]
        if first == "self":
            return module, path[1:]
        if first == "super":
            return module.parent, path[1:]
        return self.lookup(module, first, seen), path[1:]

    def lookup(self, module, name, seen):
        """What `name` is in `module`."""
        if name in module.children:
            return module.children[name]
        if name in module.defined:
            return (module,)
        if name in module.imports:
            path = module.imports[name][0]
            # `use name::...` of another crate would find itself here.
            return None if path[0] == name else self.resolve(module, path, False, seen)
        for path, _, _ in module.globs:
            found = self.resolve(module, (*path, name), True, seen)
            if found:
                return found
        return None

    def short(self, file):
        """A file's name inside src."""
        return str(file.relative_to(self.source))


def functions_of(tokens):
    """The functions that have a body: first line, name and number of lines."""
    for at, token in enumerate(tokens[:-1]):
        if token != "fn" or not re.match(r"[A-Za-z_]", tokens[at + 1]):
            continue
        place = at
        while place < len(tokens) and tokens[place] not in ("{", ";", "}"):
            place = closing(tokens, place) + 1 if tokens[place] in ("(", "[") else place + 1
        if place < len(tokens) and tokens[place] == "{":
            yield token.line, str(tokens[at + 1]), tokens[closing(tokens, place)].line - token.line + 1


def module_names(tokens):
    """The names of the modules that have files of their own."""
    return [str(tokens[at + 1]) for at, token in enumerate(tokens[:-2])
            if token == "mod" and tokens[at + 2] == ";"]


def line_count(file):
    """The lines of a file."""
    return len(file.read_text(encoding="utf-8").splitlines())


def knots(edges):
    """Sets of two files or more of which each reaches all others (strongly connected)."""
    after = {}
    for source, target in edges:
        after.setdefault(source, set()).add(target)
    reach = {file: reachable(after, file) for file in after}
    found = []
    for file in sorted(after):
        knot = {other for other in reach[file] if file in reach.get(other, ())}
        if knot and knot not in found:
            found.append(knot)
    return found


def reachable(after, start):
    """All files that `start` needs, at any distance."""
    found, front = set(), [start]
    while front:
        for file in after.get(front.pop(), ()):
            if file not in found:
                found.add(file)
                front.append(file)
    return found


def shortest_circle(edges, knot):
    """The shortest circle within a knot, as a list of files; the first in order of names."""
    best = None
    for start in sorted(knot):
        paths, seen = [[start]], {start}
        while paths and (best is None or len(paths[0]) < len(best)):
            path = paths.pop(0)
            for source, target in sorted(edges):
                if source == path[-1] and target == start:
                    best = path
                    paths = []
                    break
                if source == path[-1] and target in knot and target not in seen:
                    seen.add(target)
                    paths.append([*path, target])
    return best


def circles(crate):
    """The lines that tell of a crate's circles, none if it has none."""
    told = []
    for knot in knots(crate.edges):
        told.append(f"{len(knot)} files need each other: "
                    + ", ".join(crate.short(file) for file in sorted(knot)))
        circle = shortest_circle(crate.edges, knot)
        for source, target in zip(circle, [*circle[1:], circle[0]]):
            line, path = crate.edges[source, target]
            told.append(f"    {crate.short(source)}:{line} needs `{path}` of {crate.short(target)}")
    return told


def main(arguments=None):
    """Prints sizes and circles; the exit code is 1 if something is denied."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."),
                        help="the workspace (default: this folder)")
    parser.add_argument("--deny", metavar="NAME,...",
                        help="crates that must be free of circles (default: all); may be empty")
    parser.add_argument("--lines-max", type=int, default=LINES_MAX,
                        help="most lines of a crate without tests (default: %(default)s)")
    parser.add_argument("--function-lines-max", type=int, default=FUNCTION_LINES_MAX,
                        help="most lines of a function, but for tests (default: %(default)s)")
    parser.add_argument("--long", metavar="NAME,...", default="",
                        help="crates that may be longer for now")
    options = parser.parse_args(arguments)
    crates = [Crate(manifest.parent)
              for manifest in sorted((options.root / "crates").glob("*/Cargo.toml"))]
    denied = {crate.name for crate in crates} if options.deny is None else names(options.deny)
    wrong = report(crates, denied, names(options.long), options.lines_max)
    wrong += [f"{crate.name}: {crate.short(file)}:{line}: `{name}` has {lines} lines, allowed are {options.function_lines_max}"
              for crate in crates for file, line, name, lines in crate.functions if lines > options.function_lines_max]
    for line in wrong:
        print(f"structure: {line}", file=sys.stderr)
    return 1 if wrong else 0


def names(text):
    """The names in a list that commas separate."""
    return {name for name in text.split(",") if name}


def report(crates, denied, long, lines_max):
    """Prints sizes and circles; what is wrong."""
    known = {crate.name for crate in crates}
    wrong = [f"there is no crate {name}" for name in sorted((denied | long) - known)]
    print(f"{'crate':<20} {'lines':>7} {'with tests':>11}  circles")
    for crate in crates:
        told = circles(crate)
        count = sum(not line.startswith(" ") for line in told)
        print(f"{crate.name:<20} {crate.lines:>7} {crate.lines + crate.lines_test:>11}  {count or '-'}")
        for line in told:
            print(f"    {line}")
        if told and crate.name in denied:
            wrong.append(f"{crate.name}: its files must not need each other in a circle")
        if crate.lines > lines_max and crate.name not in long:
            wrong.append(f"{crate.name}: {crate.lines} lines without tests, allowed are {lines_max}")
    return wrong


if __name__ == "__main__":
    sys.exit(main())
