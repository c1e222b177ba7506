"""What ends a command early; each message is one line for the user."""


class UsageError(Exception):
    """The user asked for what cannot be done; exit code 2, before any work."""


class OutputError(Exception):
    """The report could not be written; exit code 3."""
