"""Read how a Jupyter server is started: its command line, its configuration, its own warning."""

from __future__ import annotations

import re
from itertools import islice

from gpudoctor.facts.exposure import Exposure, Notebook
from gpudoctor.snapshot import Snapshot

NAME = "Jupyter settings"

_APP = r"(?:c\.|--)(?:ServerApp|NotebookApp|LabApp|IdentityProvider|PasswordIdentityProvider)\."
_SERVER = re.compile(r"jupyter[ -](?:lab|notebook|server)\b[^\n]{0,2000}|\bc\.(?:ServerApp|NotebookApp)\.[^\n]{0,400}")
_TOKEN = re.compile(rf"{_APP}token ?= ?(?:''|\"\"|(?=\s|$)|(?P<set>\S{{1,200}}))")
_PASSWORD = re.compile(rf"{_APP}(?:hashed_)?password ?= ?(?:u?''|u?\"\"|(?=\s|$)|(?P<set>\S{{1,200}}))")
_ADDRESS = re.compile(rf"(?:--ip[ =]|{_APP}ip ?= ?)['\"]?([\w.:*]{{1,64}})")
_PORT = re.compile(rf"(?:--port[ =]|{_APP}port ?= ?)(\d{{1,5}})")
_CONTINUED = re.compile(r"\\\n\s{0,40}")
_NO_AUTHENTICATION = "All authentication is disabled"
MARKS = ("token", "password", _NO_AUTHENTICATION)
MOST_LINES = 50


def read(text: str) -> Snapshot | None:
    """One server: what all the lines together set. None where nothing is said of its token."""
    if not any(mark in text for mark in MARKS):
        return None
    lines = islice(_SERVER.finditer(_CONTINUED.sub(" ", text)), MOST_LINES)
    told = "\n".join(match.group() for match in lines)
    token, password = _TOKEN.search(told), _PASSWORD.search(told)
    open_to_all = (token is not None and token["set"] is None and not (password and password["set"])) or (
        _NO_AUTHENTICATION in text
    )
    if not open_to_all and token is None and password is None:
        return None
    address, port = _ADDRESS.search(told), _PORT.search(told)
    return Snapshot(
        exposure=Exposure(
            notebooks=(
                Notebook(
                    address=None if address is None else "0.0.0.0" if address[1] == "*" else address[1],  # noqa: S104
                    port=int(port[1]) if port else None,
                    token=not open_to_all,
                    tls=True if "certfile" in told else None,
                ),
            )
        )
    )
