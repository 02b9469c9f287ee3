#!/usr/bin/env python3
"""Checks the words of the documentation that readers use, and of comments in code. The documentation: the Markdown
files at the root of the workspace, those in docs/ and docs/evidence/, and the README of each crate. The comments: those of
Rust and C in crates/ and fuzz/ that have lines of their own.

It reports
- dead words: names that the project gave up, such as `mesh` for direct links,
- headless clauses: "Whoever waits ..." or a sentence that begins with "Who" and is no question,
- `node` for a daemon: write "aggregator" or "aggregation node". In HPC a node is a host. A page in which the word is
  a name of the format that it describes may say in its first lines: "*Node* on this page means an aggregation node."
- names of files in docs/ that hold a dead word, those of decisions included.

In code it reports functions whose names begin with "who" or are a participle alone ("carried", "judged"), unless they make a
value of their own type or a truth, or are of tests; and in comments dead words, headless clauses, and
`node` where it is no name in backquotes. A tree in `topology` has nodes, so the word is none of its faults.

Other code is not checked, and neither is the text of decisions: they keep the words of their time.
"""

import argparse
import pathlib
import re
import sys

import links

# The dead word, and what to write instead.
DEAD = {
    r"\bmesh\b": "direct links",
    r"\boutsiders?\b": "external receiver",
    r"\bexpress way\b": "fast path",
    r"\bledger\b": "record",
    r"\bsealed frames?\b|\bseal(s|ed|ing)? (a |the )?frames?\b": "authenticated frames",
    r"\bMPI (beneath|underneath)\b": "the underlying MPI",
    r"\bin vain\b": "without success, or what does not happen",
    r"\bso manieth\b": "every n-th",
}
DEAD_IN_NAMES = re.compile(r"(?:^|[-_])(ways?|mesh|outsiders?|ledger|sealed?|beneath|boxes|rooms?|names|old)(?:$|[-_])")
# Where a sentence begins: the line's mark of a list or a quotation, a cell, the end of another sentence.
BEGIN = r"(?:^|[.:;!?]\s+|\|\s+|\*\*)"
HEADLESS = (re.compile(BEGIN + r"(?:Who|Whom|Whose)\b(?P<rest>[^.!?|]*[.!?|]?)"),
            re.compile(r"\bwho(?:m)?ever\b", re.IGNORECASE))
LIST_MARK = re.compile(r"^(?:[-*>]|\d+\.)\s+")
NODE = re.compile(r"(?<!aggregation )(?<!aggregation-)\bnodes?\b", re.IGNORECASE)
DECLARED = re.compile(r"\*[Nn]odes?\* (?:on|in) (?:this page|these tables) means? (?:an aggregation node|the host)")
# The part of a link that is no text: its target.
TARGET = re.compile(r"\]\([^)]*\)|\]\[[^\]]*\]|<[^>]*>")
WAIVED = ("docs/SUMMARY.md", "docs/architecture.md")
# Words of comments that are terms there: a tree has nodes.
COMMENT_TERMS = {"crates/topology": (NODE,)}
# A function whose name begins with a clause that has no head.
HEADLESS_NAME = re.compile(r"^\s*(?:pub(?:\([^)]*\))? )?fn (?P<name>(?:who|whom|whose|whoever)(?:_\w*)?\b)", re.MULTILINE)
# A function whose name is a participle alone, up to its body: what it does is not said.
PARTICIPLE_NAME = re.compile(
    r"^\s*(?:pub(?:\([^)]*\))? )?(?:const |async |unsafe )*fn (?P<name>[a-z]+ed|done|sent|kept|held|known|given|begun|shown|chosen|lost"
    r"|met|said|told|found|taken|seen|made|left)(?P<rest>[<(][^{;]*)", re.MULTILINE)
VERBS = {"feed", "seed", "need", "speed", "embed", "exceed", "proceed", "succeed"}
MAKES_OWN_TYPE = re.compile(r"-> (?:bool|(?:Option<|Result<)?Self\b)")
# Python's interface of futures has it.
PARTICIPLES_ALLOWED = {"crates/python/src/request.rs": {"done"}}
TESTS_BEGIN = "#[cfg(test)]\nmod "
COMMENT_LINE = re.compile(r"^\s*(?://[/!]?|/\*+|\*(?!/)) ?(?P<text>.*?)(?:\s*\*/)?\s*$")


def paragraphs(text):
    """The paragraphs, list items and rows outside code, each in one line, with the number of its first line."""
    number, lines = 0, []
    for at, line in [*links.prose(text), (0, "")]:
        line = line.strip()
        is_first = not line or line.startswith(("|", "#")) or LIST_MARK.match(line) or at != number + len(lines)
        if is_first and lines:
            yield number, TARGET.sub("]", links.CODE.sub("`", " ".join(lines)))
            lines = []
        if line and not lines:
            number = at
        if line:
            lines.append(line if lines else LIST_MARK.sub("", line))


def comments(text):
    """The paragraphs of comments that have lines of their own, as `paragraphs` gives them."""
    number, lines, is_block = 0, [], False
    for at, line in [*enumerate(text.splitlines(), 1), (0, "")]:
        match = None if is_block and line.strip().startswith("//") else COMMENT_LINE.match(line)
        starts_block = line.strip().startswith("/*")
        is_text = (is_block or starts_block or line.strip().startswith("//")) and (match or is_block)
        content = (match["text"] if match else line.split("*/")[0]).strip() if is_text else ""
        if (not content or LIST_MARK.match(content) or content.startswith(("|", "#"))) and lines:
            yield number, links.CODE.sub("`", " ".join(lines))
            lines = []
        if content:
            number = number if lines else at
            lines.append(content if lines else LIST_MARK.sub("", content))
        is_block = (is_block or starts_block) and "*/" not in line


def dead_words(paragraph):
    """Reasons why a paragraph's words are dead."""
    for dead, now in DEAD.items():
        match = re.search(dead, paragraph, re.IGNORECASE)
        if match:
            yield f"`{match[0]}` is a dead word: {now}"


def headless_clauses(paragraph):
    """Reasons why clauses of a paragraph have no head."""
    for pattern in HEADLESS:
        for match in pattern.finditer(paragraph):
            if not match.groupdict().get("rest", "").endswith("?"):
                yield f"`{match[0].strip()[:40]}` has no head: name the actor"


def faults(name, text):
    """What is wrong with the words of a page: lines and reasons."""
    is_declared = DECLARED.search(" ".join(text.split()))
    for number, paragraph in paragraphs(text):
        for reason in (*dead_words(paragraph), *headless_clauses(paragraph)):
            yield number, reason
        if not is_declared:
            match = NODE.search(paragraph)
            if match:
                yield number, f"`{match[0]}` may be taken for a host: aggregator, or aggregation node"


def comment_faults(name, text):
    """What is wrong with the comments of a file of code: lines and reasons."""
    crate = "/".join(name.split("/")[:2])
    for match in HEADLESS_NAME.finditer(text):
        number = text.count("\n", 0, match.start("name")) + 1
        yield number, f"`{match['name'][:40]}` has no head: name the actor"
    is_test = {"tests", "benches", "fuzz"} & set(name.split("/")) or name.endswith("tests.rs")
    for match in () if is_test else PARTICIPLE_NAME.finditer(text.split(TESTS_BEGIN)[0]):
        is_allowed = match["name"] in VERBS | PARTICIPLES_ALLOWED.get(name, set())
        if not is_allowed and not MAKES_OWN_TYPE.search(match["rest"]):
            number = text.count("\n", 0, match.start("name")) + 1
            yield number, f"`{match['name']}` is a participle: a function's name is a verb phrase, or a noun for what it gives"
    for number, paragraph in comments(text):
        for reason in dead_words(paragraph):
            yield number, reason
        for reason in headless_clauses(paragraph):
            yield number, reason
        match = NODE.search(paragraph)
        if match and NODE not in COMMENT_TERMS.get(crate, ()):
            yield number, f"`{match[0]}`: a daemon is an aggregator or aggregation node, a machine with ranks is a host"


def code_files(root):
    """The files of Rust and C whose comments are checked."""
    return sorted(file for folder in ("crates", "fuzz") for file in (root / folder).rglob("*")
                  if file.suffix in (".rs", ".c", ".h") and "target" not in file.parts)


def check(root):
    """The number of pages, and all that is wrong."""
    files = [*sorted(root.glob("*.md")), *sorted((root / "docs").glob("*.md")),
             *sorted((root / "docs/evidence").glob("*.md")), *sorted(root.glob("crates/*/README.md"))]
    files = [file for file in files if str(file.relative_to(root)) not in WAIVED]
    wrong = []
    for file in files:
        name = str(file.relative_to(root))
        for number, reason in faults(name, file.read_text(encoding="utf-8")):
            wrong.append(f"{name}:{number}: {reason}")
    for file in code_files(root):
        name = str(file.relative_to(root))
        for number, reason in comment_faults(name, file.read_text(encoding="utf-8")):
            wrong.append(f"{name}:{number}: {reason}")
    for file in sorted((root / "docs").rglob("*")):
        match = DEAD_IN_NAMES.search(file.stem)
        if file.is_file() and match:
            wrong.append(f"{file.relative_to(root)}: the name has the dead word `{match[1]}`")
    return len(files), wrong


def main(arguments=None):
    """Prints what is wrong; the exit code is 1 if something is."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."),
                        help="the workspace (default: this folder)")
    options = parser.parse_args(arguments)
    pages, wrong = check(options.root)
    if not pages:
        wrong.append(f"{options.root}: there is no page")
    for line in wrong:
        print(f"words: {line}", file=sys.stderr)
    print(f"words: {pages} pages, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
