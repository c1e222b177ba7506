"""NVML, asked one question at a time: what one board or one driver does not answer costs that answer alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from gpudoctor.probes.system import NotRead, System

LOST = frozenset({"NVML_ERROR_GPU_IS_LOST", "NVML_ERROR_RESET_REQUIRED"})
REFUSED = "NVML_ERROR_NO_PERMISSION"


class BoardLost(Exception):
    """The driver lists the board and cannot talk to it."""


class Nvml:
    """A started NVML. `pynvml` is that module, or what stands for it in tests."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.refused: set[str] = set()
        """Names of calls that wanted more rights."""

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of the call of that name; None where this board or this driver has none.

        Raises BoardLost where the board is gone.
        """
        try:
            return getattr(self.pynvml, name)(*arguments)
        except AttributeError:
            return None  # an older binding
        except self.pynvml.NVMLError as error:
            kind = self.error_name(error)
            if kind in LOST:
                raise BoardLost(str(error)) from error
            if kind == REFUSED:
                self.refused.add(name)
            return None

    def error_name(self, error: Exception) -> str:
        """`NVML_ERROR_GPU_IS_LOST` and kin; empty for a number the binding does not know."""
        value = getattr(error, "value", None)
        return next(
            (
                name
                for name in dir(self.pynvml)
                if name.startswith("NVML_ERROR_") and getattr(self.pynvml, name) == value
            ),
            "",
        )

    def handles(self) -> list[Any]:
        """One a board, in PCI order; in the place of one that gives none, the error."""
        found: list[Any] = []
        for index in range(self.pynvml.nvmlDeviceGetCount()):
            try:
                found.append(self.pynvml.nvmlDeviceGetHandleByIndex(index))
            except self.pynvml.NVMLError as error:
                found.append(error)
        return found

    def whole(self, name: str, *arguments: Any, scale: float = 1) -> int | None:
        """A number, scaled and cut to a whole one."""
        answer = self.ask(name, *arguments)
        return None if answer is None else int(answer * scale)

    def flag(self, name: str, *arguments: Any) -> bool | None:
        """A switch; of a current and a pending state the current one."""
        answer = self.ask(name, *arguments)
        if answer is None:
            return None
        return bool(answer[0] if isinstance(answer, (list, tuple)) else answer)


@contextmanager
def started(system: System, load: Callable[[], Any] | None = None) -> Iterator[Nvml]:
    """NVML of this machine. Raises NotRead where there is none, or it does not start, with its words."""
    if not system.live:
        raise NotRead("NVML tells of this machine alone, not of a recorded one")
    try:
        pynvml = (load or _load)()
    except ImportError as error:
        raise NotRead(f"nvidia-ml-py does not import: {error}") from error
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        nvml = Nvml(pynvml)
        if nvml.error_name(error) == "NVML_ERROR_LIBRARY_NOT_FOUND":
            raise NotRead("no NVIDIA driver library (libnvidia-ml.so.1)") from error
        raise NotRead(f"NVML does not start: {error}") from error
    try:
        yield Nvml(pynvml)
    finally:
        pynvml.nvmlShutdown()


def _load() -> Any:
    import pynvml

    return pynvml
