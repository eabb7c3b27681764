"""Reads a page: its fenced blocks, and the hints in comments that say how the test runs each of them.

A hint is an HTML comment on the line before a fence; `tests/docs/README.md` describes all hints.
"""

import pathlib
import re
from dataclasses import dataclass

# Blocks of these languages show what a program prints; nothing runs them.
SHOWN = {"text", "json", "mermaid", "console", "diff", "http"}
SHELL = {"sh", "bash"}
# What runs a block that has the hint `run`; the text of the block is in the file $text.
INTERPRETERS = {
    "sh": 'bash -e "$text"', "bash": 'bash -e "$text"', "python": 'python3 - <"$text"', "js": 'node --input-type=module - <"$text"',
    "sql": 'psql --set ON_ERROR_STOP=1 --file "$text"',
}
TRIED = "How this was tried:"

HINT = re.compile(r"^ *<!--\s*(run|file|setup|tested by|not run)\b:?\s*(.*?)\s*-->\s*$", re.DOTALL)
WAIT = re.compile(r"(background|output|fails)\s+/(.*)/", re.DOTALL)
FENCE = re.compile(r"^( *)(`{3,})([\w+-]*)(.*)$")


class PageError(Exception):
    """A page that the test cannot run as it stands."""


@dataclass
class Step:
    """One thing to do: a block, or the hidden commands of `setup`."""

    line: int
    language: str
    text: str
    # run, background, output, fails, file, append, merge, setup, check or nothing.
    action: str
    # The pattern, or the path of the file.
    argument: str = ""

    def __str__(self):
        return f"line {self.line}: {self.action} {self.argument}".rstrip()


def steps(text: str, name: str, root: pathlib.Path) -> list[Step]:
    """What the page wants to be done, from top to bottom. `name`: the path of the page below `root`."""
    found, hint, problems = [], None, []
    lines = iter(enumerate(text.split("\n"), 1))
    for number, line in lines:
        if line.lstrip().startswith("<!--"):
            if hint:
                problems.append(f"line {hint[0]}: no fence follows the hint")
            hint = read_hint(number, line, lines)
            if hint and hint[1] == "setup":
                found.append(Step(number, "sh", hint[2], "setup"))
                hint = None
            continue
        fence = FENCE.match(line)
        if fence:
            block = read_block(lines, fence[1], fence[2], number)
            try:
                found.append(step(number, fence[3], block, hint, Place(text, name, root)))
            except PageError as problem:
                problems.append(str(problem))
        elif hint:
            problems.append(f"line {hint[0]}: the hint does not stand directly before a fence")
        hint = None
    if problems:
        raise PageError("\n".join(problems))
    return found


def read_hint(number: int, comment: str, lines) -> "tuple[int, str, str] | None":
    """The line, the kind and the value of a hint; nothing for a comment that is not a hint. A comment may have several lines."""
    while "-->" not in comment:
        try:
            comment += "\n" + next(lines)[1]
        except StopIteration:
            raise PageError(f"line {number}: the comment does not end") from None
    hint = HINT.match(comment)
    return (number, hint[1], hint[2]) if hint else None


def read_block(lines, indent: str, ticks: str, number: int) -> str:
    """The text of a block, without the indentation of a list."""
    block = []
    for _, line in lines:
        if line.strip() == ticks:
            return "".join(f"{line}\n" for line in block)
        block.append(line[len(indent):] if line.startswith(indent) else line)
    raise PageError(f"line {number}: the block does not end")


@dataclass
class Place:
    """The page that a block stands in."""

    text: str
    name: str
    root: pathlib.Path


def step(number: int, language: str, block: str, hint, place: Place) -> Step:
    """What is done with a block."""
    if not language:
        raise PageError(f"line {number}: a fence needs a language; what a program prints has the language text")
    kind, value = hint[1:] if hint else (None, "")
    if kind is None:
        if language not in SHOWN | SHELL | {"toml"}:
            raise PageError(f"line {number}: a block in the language {language} needs a hint: run, file, tested by or not run")
        action = "" if language in SHOWN else "check" if language == "toml" else "run"
        return Step(number, language, block, action)
    if kind == "run":
        if language not in INTERPRETERS:
            raise PageError(f"line {number}: the test cannot run the language {language}")
        wait = WAIT.fullmatch(value)
        if value and not wait:
            raise PageError(f"line {number}: a hint is `run`, or `run: background|output|fails /PATTERN/`")
        return Step(number, language, block, wait[1] if wait else "run", wait[2] if wait else "")
    if kind == "file":
        path, _, how = value.partition(" ")
        if not path or how not in ("", "append", "merge"):
            raise PageError(f"line {number}: a hint is `file: PATH`, `file: PATH append` or `file: PATH merge`")
        return Step(number, language, block, how or "file", path)
    if kind == "tested by":
        check_test(number, value, place)
    elif not value:
        raise PageError(f"line {number}: `not run` needs a reason")
    elif not any(line.lstrip("*_> -").startswith(TRIED) for line in place.text.split("\n")):
        raise PageError(f"line {number}: a page with `not run` has a line that begins with {TRIED!r}")
    return Step(number, language, block, "")


def check_test(number: int, value: str, place: Place) -> None:
    """A suite that takes blocks from a page names the page."""
    test = place.root / value
    if not test.is_file():
        raise PageError(f"line {number}: there is no test {value}")
    if place.name not in test.read_text():
        raise PageError(f"line {number}: the test {value} does not name {place.name}")
