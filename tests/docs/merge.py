#!/usr/bin/env python3
"""merge.py FILE: writes the keys of the TOML on the standard input into FILE, each into its section, as a reader of a page would.

A key that the section has already is replaced. A section that the file lacks, and each `[[section]]`, is appended.
"""

import pathlib
import re
import sys

HEADER = re.compile(r"^\s*(\[\[?[^\]]+\]\]?)\s*(#.*)?$")
KEY = re.compile(r"^\s*([\w.\"-]+)\s*=")


def sections(text: str) -> "list[tuple[str, list[str]]]":
    """The headers of a file in order, each with its lines; the first header is empty."""
    found = [("", [])]
    for line in text.splitlines():
        header = HEADER.match(line)
        if header:
            found.append((header[1], []))
        else:
            found[-1][1].append(line)
    return found


def key(line: str) -> "str | None":
    """The key that a line sets."""
    match = KEY.match(line)
    return match[1] if match else None


def merge(text: str, more: str) -> str:
    """`text` with the keys of `more`. A value that takes several lines must not have a key's form inside."""
    result = sections(text)
    for header, lines in sections(more):
        place = next((kept for name, kept in result if name == header and not name.startswith("[[")), None)
        if place is None:
            result.append((header, lines))
            continue
        new = {key(line) for line in lines} - {None}
        place[:] = lines + [line for line in place if key(line) not in new]
    return "".join((f"{header}\n" if header else "") + "".join(f"{line}\n" for line in lines) for header, lines in result)


if __name__ == "__main__":
    file = pathlib.Path(sys.argv[1])
    file.write_text(merge(file.read_text() if file.exists() else "", sys.stdin.read()))
