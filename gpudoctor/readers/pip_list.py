"""Read lists of packages: `pip list`, `pip freeze`, `pip show`, `uv pip list`, `conda list`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice

from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.packages import Packages
from gpudoctor.readers import wheels
from gpudoctor.readers.wheels import Installed
from gpudoctor.snapshot import Snapshot

NAME = "list of packages"
MOST_LINES, MOST_PACKAGES = 1_000_000, 5000
LONGEST_LINE = 600

_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,80}[A-Za-z0-9])?"
_VERSION = r"v?\d[\w.+!-]{0,80}"
_FROZEN = re.compile(rf"({_NAME})==({_VERSION})(?:\s{{0,4}}[;#\\].{{0,200}})?")
_AT = re.compile(
    rf"({_NAME}) @ \S{{1,400}}?-({_VERSION}?)-[\w.]{{1,40}}-[\w.]{{1,40}}-[\w.]{{1,80}}\.whl(?:#\S{{1,200}})?"
)
_ROW = re.compile(rf"({_NAME})\s{{1,60}}({_VERSION})(?:\s{{1,60}}(\S{{1,100}}))?(?:\s{{1,60}}(\S{{1,200}}))?")
_HEADING = re.compile(r"Package\s{1,60}Version\b.{0,200}|# Name\s{1,60}Version\s{1,60}Build.{0,100}")
_SHOWN = re.compile(rf"(Name|Version): ({_NAME}|{_VERSION})")
MARKS = ("==", " @ ", "Version")
FEWEST = 2
"""Lines `name==version` that make a list; one alone is a wish more often than a state."""


def read(text: str) -> Snapshot | None:
    """Everything listed; torch's build as far as its version tells."""
    listed = tuple(_listed(text)) if any(mark in text for mark in MARKS) else ()
    if not listed:
        return None
    build = wheels.torch(listed)
    libraries = wheels.libraries(listed)
    packages = wheels.packages(listed)
    if build is None and not libraries and not packages:
        return None
    return Snapshot(
        torch=build,
        packages=Packages(installed=packages) if packages else None,
        libraries=Libraries(wheels=libraries) if libraries else None,
    )


def _listed(text: str) -> Iterator[Installed]:
    lines = [line for raw in text.splitlines()[:MOST_LINES] if (line := raw.strip()) and len(line) <= LONGEST_LINE]
    if "Version: " in text:
        yield from _shown(lines)
    if "Version" in text:
        yield from _tabled(lines)
    every = (item for line in lines if ("==" in line or " @ " in line) and (item := _frozen(line)))
    frozen = list(islice(every, MOST_PACKAGES))
    if len(frozen) >= FEWEST:
        yield from frozen


def _frozen(line: str) -> Installed | None:
    """`name==1.2` or `name @ file:///…/name-1.2-….whl`."""
    if match := _FROZEN.fullmatch(line):
        return Installed(wheels.normal(match[1]), match[2])
    if match := _AT.fullmatch(line):
        return Installed(wheels.normal(match[1]), match[2].replace("%2B", "+"))
    return None


def _shown(lines: list[str]) -> Iterator[Installed]:
    """`pip show`."""
    name = ""
    for line in lines:
        if line.startswith(("Name: ", "Version: ")) and (match := _SHOWN.fullmatch(line)):
            if match[1] == "Name":
                name = match[2]
            elif name:
                yield Installed(wheels.normal(name), match[2])
                name = ""


def _tabled(lines: list[str]) -> Iterator[Installed]:
    """Below a heading, until a line that is no row."""
    in_table = conda = False
    for line in lines:
        if _HEADING.fullmatch(line):
            in_table, conda = True, line.startswith("#")
        elif in_table and not line.startswith(("---", "===", "#")):
            row = _ROW.fullmatch(line)
            in_table = row is not None
            if row is not None:
                build = (row[3] or "") if conda and row[4] != "pypi" else ""
                yield Installed(wheels.normal(row[1]), row[2], build)
