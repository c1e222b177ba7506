"""Which lines of the job make the host wait for the GPU, as torch's sync debug mode warns; and keeping torch quiet.

The job's stderr is the job's: what torch warns about our own use of it goes nowhere. Nothing here tells the warnings
module that its filters changed: it would then show warnings of the job's anew that it had shown before.
"""

from __future__ import annotations

import re
import sys
import warnings
from collections import Counter
from typing import Any, Callable, Dict, List

_MESSAGE = re.compile(".*synchronizing CUDA operation")
_ALWAYS = ("always", _MESSAGE, Warning, None, 0)


def quietly(call: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call without showing what it warns about."""
    shown = warnings.showwarning
    warnings.showwarning = lambda *_, **__: None
    try:
        return call(*args, **kwargs)
    finally:
        warnings.showwarning = shown


class SyncCalls:
    """Counts by place between `begin` and `end`, on jobs that use CUDA."""

    def __init__(self) -> None:
        self._places: Counter[str] = Counter()
        self._shown: Any = None

    def begin(self) -> None:
        """Count the warnings instead of showing them; all others go on as before."""
        shown = self._shown = warnings.showwarning

        def show(message: Any, category: Any, filename: str, lineno: int, file: Any = None, line: Any = None) -> None:
            if _MESSAGE.match(str(message)):
                self._places[f"{filename}:{lineno}"] += 1
            else:
                shown(message, category, filename, lineno, file, line)

        quietly(sys.modules["torch"].cuda.set_sync_debug_mode, 1)
        warnings.showwarning = show
        warnings.filters.insert(0, _ALWAYS)  # type: ignore[attr-defined]

    def end(self) -> None:
        """Back to what it was; nothing where it was not begun."""
        if self._shown is None:
            return
        warnings.showwarning, self._shown = self._shown, None
        if _ALWAYS in warnings.filters:
            warnings.filters.remove(_ALWAYS)  # type: ignore[attr-defined]
        quietly(sys.modules["torch"].cuda.set_sync_debug_mode, 0)

    def as_json(self) -> List[Dict[str, Any]]:
        """The most frequent first."""
        return [{"where": where, "count": count} for where, count in self._places.most_common(20)]
