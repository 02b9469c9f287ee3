#!/usr/bin/env python3
"""Checks the links of the documentation: every file and every anchor that a link names must exist.

Without --html it reads the Markdown files of the workspace: those at its root, and all below docs/.
It also checks that the book's table of contents, docs/SUMMARY.md, lists every page below docs/.
With --html FOLDER it reads the pages that mdBook wrote. Links to other sites are not followed.
"""

import argparse
import html.parser
import pathlib
import re
import sys
import urllib.parse

FENCE = re.compile(r"^ {0,3}(```+|~~~+)")
CODE = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
INLINE = re.compile(r"\]\(\s*<?([^\s)>]*)>?(?:\s+\"[^\"]*\")?\s*\)")
REFERENCE = re.compile(r"^ {0,3}\[[^\]]+\]:\s*<?(\S+?)>?(?:\s|$)")
HEADING = re.compile(r"^ {0,3}(#{1,6})\s+(.*?)\s*#*\s*$")
HTML_LINK = re.compile(r"<(?:a|img)\b[^>]*?\b(?:href|src)=\"([^\"]*)\"")
HTML_ANCHOR = re.compile(r"<[^>]+\b(?:id|name)=\"([^\"]+)\"")
INCLUDE = re.compile(r"\{\{#include\s+([^}\s]+)\s*\}\}")
SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:|^//")


def prose(text):
    """The lines outside fenced code, with their numbers."""
    fence = None
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if fence is None and match:
            fence = match[1]
        elif fence is not None:
            if match and match[1].startswith(fence) and line.strip() == match[1]:
                fence = None
        else:
            yield number, line


def slug(heading):
    """The anchor of a heading, as GitHub and mdBook make it."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").replace("*", "")
    return "".join(letter for letter in text.lower().replace(" ", "-")
                   if letter.isalnum() or letter in "-_")


class Page:
    """The links of a page, with their lines, and its anchors."""

    def __init__(self, file):
        self.file = file
        self.links, self.anchors = [], set()


def markdown_page(file):
    """Reads a Markdown file."""
    page, seen = Page(file), {}
    for number, line in prose(file.read_text(encoding="utf-8")):
        heading = HEADING.match(line)
        if heading:
            name = slug(heading[2])
            count = seen[name] = seen.get(name, -1) + 1
            page.anchors.add(f"{name}-{count}" if count else name)
        line = CODE.sub("", line)
        page.anchors.update(HTML_ANCHOR.findall(line))
        found = [*INLINE.findall(line), *REFERENCE.findall(line), *HTML_LINK.findall(line),
                 *INCLUDE.findall(line)]
        page.links += [(number, link) for link in found]
    return page


class HtmlReader(html.parser.HTMLParser):
    """Collects the links and anchors of a page that mdBook wrote."""

    def __init__(self, page):
        super().__init__()
        self.page = page

    def handle_starttag(self, tag, attrs):
        """Takes in one tag."""
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.page.anchors.add(value)
            elif name in ("href", "src") and value and tag != "base":
                self.page.links.append((self.getpos()[0], value))


def html_page(file):
    """Reads an HTML file."""
    page = Page(file)
    HtmlReader(page).feed(file.read_text(encoding="utf-8"))
    return page


def dead_links(pages, root):
    """What is wrong with the links of `pages`, none of which may leave `root`."""
    by_file = {page.file.resolve(): page for page in pages}
    for page in pages:
        for number, link in page.links:
            fault = fault_of(page, link, by_file, root)
            if fault:
                yield f"{page.file.relative_to(root)}:{number}: {link}: {fault}"


def fault_of(page, link, by_file, root):
    """What is wrong with one link; None if nothing is."""
    if SCHEME.match(link):
        return None
    path, _, anchor = urllib.parse.unquote(link).partition("#")
    target = (page.file.parent / path).resolve() if path else page.file.resolve()
    if not target.is_relative_to(root.resolve()):
        return "leads out of the documentation"
    if not target.exists():
        return "there is no such file"
    if anchor and target in by_file and anchor not in by_file[target].anchors:
        return "there is no such heading"
    return None


def unlisted(root):
    """The pages of docs/ that the table of contents lacks."""
    contents = root / "docs/SUMMARY.md"
    if not contents.exists():
        return
    listed = {(contents.parent / link).resolve() for _, link in markdown_page(contents).links}
    for file in sorted(contents.parent.rglob("*.md")):
        if file != contents and file.resolve() not in listed:
            yield f"{file.relative_to(root)}: docs/SUMMARY.md does not list this page"


def main(arguments=None):
    """Prints what is wrong; the exit code is 1 if something is."""
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=pathlib.Path, default=pathlib.Path("."),
                        help="the workspace (default: this folder)")
    parser.add_argument("--html", type=pathlib.Path, metavar="FOLDER",
                        help="check the pages in this folder instead")
    options = parser.parse_args(arguments)
    if options.html:
        # The page for addresses that don't exist has links that hold at the root of a server only.
        files = [file for file in sorted(options.html.rglob("*.html")) if file.name != "404.html"]
        root, pages, wrong = options.html, [html_page(file) for file in files], []
    else:
        root = options.root
        files = [*sorted(root.glob("*.md")), *sorted((root / "docs").rglob("*.md"))]
        pages, wrong = [markdown_page(file) for file in files], list(unlisted(root))
    wrong += dead_links(pages, root)
    if not pages:
        wrong.append(f"{root}: there is no page")
    for line in wrong:
        print(f"links: {line}", file=sys.stderr)
    print(f"links: {sum(len(page.links) for page in pages)} in {len(pages)} pages, {len(wrong)} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
