"""Builds the site from the Markdown pages of the repository: `build.py MERMAID`, the path of mermaid.min.js.

The pages keep their places, so that their links to each other stay valid. A file that a page links to is copied too.
The build fails if a link or an anchor has no target, and if a page is not in the menu of zensical.toml.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SITE = Path(__file__).resolve().parent
BUILD = ROOT / "target/docs"
PAGES = BUILD / "pages"
LINK = re.compile(r"(\]\()([^)\s#]+)((?:#[^)\s]*)?\))")
FENCE = re.compile(r"^(```.*?^```$)", re.S | re.M)


def tracked(*patterns):
    """The files of the repository that match, as paths relative to its root."""
    files = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", *patterns], cwd=ROOT, check=True, capture_output=True, text=True)
    return [Path(line) for line in files.stdout.splitlines()]


def target_of(page, link):
    """The file that a link of a page leads to, relative to the root; None for an address or a file that does not exist."""
    if re.match(r"[a-z]+:", link):
        return None
    path = Path(os.path.normpath(page.parent / link))
    if (ROOT / path).is_dir():
        for first in ("README.md", "src/lib.rs", "src/main.rs", "mod.rs"):
            if (ROOT / path / first).is_file():
                return path / first
        inside = sorted(tracked(f"{path}/*"))
        return inside[0] if inside else None
    return path if (ROOT / path).is_file() else None


def place(page):
    """Copies a page with the files that it links to. A link to a folder leads to the folder's first file."""
    def replace(found):
        target = target_of(page, found[2])
        if target is None:
            return found[0]
        if target.suffix != ".md":
            copy(target)
        return found[1] + os.path.relpath(target, page.parent) + found[3]

    text = (ROOT / page).read_text()
    parts = [part if part.startswith("```") else LINK.sub(replace, part) for part in FENCE.split(text)]
    destination = PAGES / page
    destination.parent.mkdir(parents=True, exist_ok=True)
    destination.write_text("".join(parts))


def copy(path):
    """Copies a file that is not a page."""
    (PAGES / path).parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(ROOT / path, PAGES / path)


def pages():
    """The pages of the site."""
    return [page for page in tracked("*.md") if page.parts[0] not in ("tests", "packaging", "crates", "console")]


def main():
    menu = (SITE / "zensical.toml").read_text()
    missing = [str(page) for page in pages() if f'"{page}"' not in menu]
    if missing:
        print("these pages are not in the menu of docs/site/zensical.toml:", *missing, file=sys.stderr)
        return 1
    shutil.rmtree(PAGES, ignore_errors=True)
    for page in pages():
        place(page)
    shutil.copyfile(sys.argv[1], PAGES / "mermaid.min.js")
    shutil.copyfile(SITE / "zensical.toml", BUILD / "zensical.toml")
    command = [Path(sys.executable).with_name("zensical"), "build", "--strict", "--clean"]
    return subprocess.run(command, cwd=BUILD).returncode


if __name__ == "__main__":
    sys.exit(main())
