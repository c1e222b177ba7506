"""Write what is generated from the code: docs/rules.md, docs/usage.md and the JSON Schema of the report.

`python docs/generate.py` writes, `python docs/generate.py --check` fails where a file is stale.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from gpudoctor.arguments import COMMANDS
from gpudoctor.reports.json import schema
from gpudoctor.reports.rules import all_to_markdown
from gpudoctor.rules.every import ALL_RULES

ROOT = Path(__file__).resolve().parent.parent
NOTE = "<!-- Written by docs/generate.py; edit the rules or the command line instead. -->\n"


def rules() -> str:
    """Every rule, area by area."""
    return (
        f"# Findings\n\n{NOTE}\nWhat `gpudoctor` knows, as `gpudoctor explain CODE` tells it. "
        f"Codes are never reused or renumbered.\n\n{all_to_markdown(ALL_RULES)}"
    )


def usage() -> str:
    """The help of every command."""
    parts = [f"# Usage\n\n{NOTE}"]
    for command in ((), *((command.name,) for command in COMMANDS)):
        words = " ".join(("gpudoctor", *command, "--help"))
        parts.append(f"```console\n$ {words}\n{_help(command)}```\n")
    return "\n".join(parts)


def report_schema() -> str:
    """Of `--format json`."""
    return json.dumps(schema(), indent=2, ensure_ascii=False) + "\n"


FILES: dict[str, Callable[[], str]] = {
    "docs/rules.md": rules,
    "docs/usage.md": usage,
    "gpudoctor/reports/report.schema.json": report_schema,
}


def main(arguments: list[str]) -> int:
    """Write, or with --check compare."""
    stale = [name for name, text in FILES.items() if _read(ROOT / name) != text()]
    if "--check" in arguments:
        for name in stale:
            print(f"{name} is stale: run python docs/generate.py")
        return 1 if stale else 0
    for name in stale:
        (ROOT / name).write_text(FILES[name](), encoding="utf-8")
        print(f"wrote {name}")
    return 0


def _help(command: tuple[str, ...]) -> str:
    environment = {**os.environ, "COLUMNS": "80", "TERM": "dumb"}
    words = [sys.executable, "-m", "gpudoctor", *command, "--help"]
    return subprocess.run(words, check=True, capture_output=True, text=True, env=environment).stdout


def _read(path: Path) -> str | None:
    return path.read_text(encoding="utf-8") if path.exists() else None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
