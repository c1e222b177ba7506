"""The command line's words: one file a command, its options and how they become what the command takes."""

from __future__ import annotations

from gpudoctor.arguments import analyze, check, explain, profile, rules

COMMANDS = (
    check.COMMAND,
    profile.COMMAND,
    analyze.COMMAND,
    explain.COMMAND,
    rules.COMMAND,
)
"""In the order of the help."""
