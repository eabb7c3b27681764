"""The index of the documentation, docs/README.md, has every page once."""

import os
import pathlib
import re
import unittest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"
# Folders whose own README lists their pages.
LISTED = ["adr", "internals"]


def links(page: pathlib.Path) -> "list[str]":
    """The pages below docs that a page links to, as paths from docs."""
    targets = re.findall(r"\]\(([^)#:]+\.md)(?:#[^)]*)?\)", page.read_text())
    return [os.path.normpath((page.parent / target).relative_to(DOCS)) for target in targets if not target.startswith("../../")]


class Index(unittest.TestCase):
    def test_the_index_has_every_page_once(self):
        own = [str(path.relative_to(DOCS)) for path in DOCS.rglob("*.md") if path.parent.name not in LISTED]
        expected = [name for name in own if name != "README.md"] + [f"{folder}/README.md" for folder in LISTED]
        found = links(DOCS / "README.md")
        self.assertEqual(sorted(found), sorted(expected))

    def test_folders_with_an_index_list_their_pages(self):
        for folder in LISTED:
            listed = set(links(DOCS / folder / "README.md"))
            for path in (DOCS / folder).glob("*.md"):
                if path.name != "README.md":
                    self.assertIn(str(path.relative_to(DOCS)), listed)
