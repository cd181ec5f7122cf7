"""Hooks of MkDocs: they let it build the pages as GitHub shows them.

GitHub reads CommonMark, MkDocs its own Markdown: lists need four spaces and an empty line before them, and code in tables no
backslashes. The site has the pages alone, and GitHub the whole repository.
"""

import collections
import html.parser
import itertools
import logging
import os
import posixpath
import re

import markdown_it

# A warning ends a strict build after all pages were read.
log = logging.getLogger("mkdocs.hooks")

ROOT = os.environ["DOCS_SITE_ROOT"]
VERSION = os.environ["DOCS_SITE_VERSION"]

LINK = re.compile(r"\]\(([^)\s]+)\)")
ITEM = re.compile(r"([-*+]|\d+[.)]) +")
CODE = re.compile(r"`[^`]+`")
FENCE = re.compile(r" *(`{3,}|~{3,})")


def on_config(config):
    config.site_name = f"{config.site_name} {VERSION}"
    config.copyright = f"Documentation of version {VERSION}"
    config.nav = expanded(config.nav, named(config.nav), config.docs_dir)
    return config


def named(nav):
    """Returns the pages that a navigation names."""
    if isinstance(nav, str):
        return {nav}
    parts = nav.values() if isinstance(nav, dict) else nav
    return set().union(*map(named, parts))


def expanded(nav, taken, pages):
    """Returns a navigation with the pages that each "folder/*" stands for."""
    if isinstance(nav, dict):
        return {title: expanded(part, taken, pages) for title, part in nav.items()}
    if isinstance(nav, str):
        return nav
    result = []
    for part in nav:
        if isinstance(part, str) and part.endswith("/*"):
            folder = part.removesuffix("*")
            result += (folder + name for name in sorted(os.listdir(os.path.join(pages, folder)))
                       if name.endswith(".md") and folder + name not in taken)
        else:
            result.append(expanded(part, taken, pages))
    return result


def on_page_markdown(markdown, page, config, files):
    # Decisions come last in the search: most readers look for what holds now. The theme counts a word of a title 1,000 times.
    if page.file.src_uri.startswith("docs/adr/"):
        page.meta["search"] = {"boost": 0.0001}
    lines, fence = [], ""
    for line in markdown.split("\n"):
        if mark := FENCE.match(line):
            if not fence:
                fence = mark[1]
            elif mark[1].startswith(fence):
                fence = ""
        elif not fence:
            if line.lstrip().startswith("|"):
                line = CODE.sub(lambda m: m[0].replace("\\|", "|"), line)
            line = LINK.sub(lambda m: f"]({target(m[1], page.file.src_uri, files)})", line)
        lines.append(line)
    return "\n".join(indented(lines))


def target(link, page, files):
    """Returns where a link of a page leads on the site: what is no page of it is in the repository."""
    if "://" in link or link.startswith("#") or link.startswith("mailto:"):
        return link
    path, mark, anchor = link.partition("#")
    there = posixpath.normpath(posixpath.join(posixpath.dirname(page), path))
    if files.get_file_from_path(there):
        return link
    if files.get_file_from_path(posixpath.join(there, "README.md")):
        return posixpath.join(path, "README.md") + mark + anchor
    if not os.path.exists(os.path.join(ROOT, there)):
        return link
    kind = "tree" if os.path.isdir(os.path.join(ROOT, there)) else "blob"
    return f"https://github.com/bergctf/berg-operator/{kind}/v{VERSION}/{there}{mark}{anchor}"


def indented(lines):
    """Returns the lines of CommonMark with the lists as MkDocs reads them: each level four spaces, an empty line before."""
    result = []
    # The columns at which the text of the open items begins, and the fence that is open.
    items, fence = [], ""
    for line in lines:
        if not line.strip():
            result.append("")
            continue
        column = len(line) - len(line.lstrip())
        sibling = False
        if not fence:
            while items and column < items[-1]:
                items.pop()
                sibling = True
        text = line[min(column, items[-1]) if items else 0:]
        mark = FENCE.match(text)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence):
            fence = ""
        elif not fence and (item := ITEM.match(text)):
            if not sibling and not begins(item[1], result):
                result.append(" " * 4 * len(items) + text.replace(item[1], item[1][:-1] + "\\" + item[1][-1], 1))
                continue
            if result and result[-1] and (not sibling or parted(result, " " * 4 * len(items))):
                result.append("")
            result.append(" " * 4 * len(items) + text)
            items.append(column + item.end())
            continue
        result.append(" " * 4 * len(items) + text)
    return result


def parted(before, indent):
    """Reports whether the last item of a list at an indent has several paragraphs."""
    for line in reversed(before):
        if not line:
            return True
        if line.startswith(indent) and ITEM.match(line.removeprefix(indent)):
            return False
    return False


def begins(mark, before):
    """Reports whether a list begins with a mark: within a paragraph, a number other than 1 is text."""
    return not mark[0].isdigit() or int(mark[:-1]) == 1 or not before or not before[-1]


class Outline(html.parser.HTMLParser):
    """The elements and the words of a page, without what MkDocs adds."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.words, self.added = collections.Counter(), [], False
        self.feed(text)
        self.words = "".join(self.words).split()

    def handle_starttag(self, tag, attributes):
        self.added = self.added or "headerlink" in (dict(attributes).get("class") or "")
        if not self.added and tag not in ("div", "span", "p"):
            self.elements[tag] += 1

    def handle_endtag(self, tag):
        self.added = self.added and tag != "a"

    def handle_data(self, data):
        if not self.added:
            self.words.append(data)


def on_page_content(html, page, config, files):
    """Fails where the page would look different from that on GitHub."""
    with open(page.file.abs_src_path, encoding="utf-8") as source:
        reference = Outline(markdown_it.MarkdownIt("gfm-like", {"linkify": False}).render(source.read()))
    built = Outline(html)
    if built.elements != reference.elements:
        log.warning(f"{page.file.src_uri}: the site has {dict(built.elements - reference.elements)} more than GitHub, "
                    f"and {dict(reference.elements - built.elements)} less")
    for number, (ours, theirs) in enumerate(itertools.zip_longest(built.words, reference.words)):
        if ours != theirs:
            around = slice(max(0, number - 5), number + 5)
            log.warning(f"{page.file.src_uri}: the site has {built.words[around]}, and GitHub {reference.words[around]}")
            break
