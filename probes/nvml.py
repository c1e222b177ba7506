"""NVML, asked one question at a time: what one board or one driver does not answer costs that answer alone."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from gpudoctor.probes.system import NotRead, System

NO_SUCH_ANSWER = frozenset(
    {
        "NVML_ERROR_NOT_SUPPORTED",
        "NVML_ERROR_FUNCTION_NOT_FOUND",
        "NVML_ERROR_NOT_FOUND",
        "NVML_ERROR_NO_DATA",
        "NVML_ERROR_INVALID_ARGUMENT",
        "NVML_ERROR_ARGUMENT_VERSION_MISMATCH",
        "NVML_ERROR_DEPRECATED",
        "NVML_ERROR_VGPU_ECC_NOT_SUPPORTED",
        # Of a board that answers otherwise; `gpu` has a field for it.
        "NVML_ERROR_CORRUPTED_INFOROM",
    }
)
"""Answers of the hardware or the driver, not failures to answer."""
NOT_OURS = frozenset({"NVML_ERROR_NO_PERMISSION", "NVML_ERROR_OPERATING_SYSTEM"})
"""A board that a control group (Slurm, a container) keeps from this process."""


NO_LIBRARY = "no NVIDIA driver library (libnvidia-ml.so.1)"


class BoardLost(Exception):
    """The driver lists the board and cannot talk to it."""


class ResetNeeded(BoardLost):
    """The driver talks to it again only after a reset."""


class Nvml:
    """A started NVML. `pynvml` is that module, or what stands for it in tests."""

    def __init__(self, pynvml: Any) -> None:
        self.pynvml = pynvml
        self.failed: dict[str, str] = {}
        """Name of a call → why it gave no answer although there should be one."""
        self._error_names = {getattr(pynvml, name): name for name in dir(pynvml) if name.startswith("NVML_ERROR_")}

    def ask(self, name: str, *arguments: Any) -> Any:
        """The answer of the call of that name; None where this board or this driver has none.

        Raises BoardLost where the board is gone.
        """
        call = getattr(self.pynvml, name, None)
        if call is None:
            return None  # an older binding
        try:
            return call(*arguments)
        except self.pynvml.NVMLError as error:
            kind = self.error_name(error)
            if kind == "NVML_ERROR_GPU_IS_LOST":
                raise BoardLost(str(error)) from error
            if kind == "NVML_ERROR_RESET_REQUIRED":
                raise ResetNeeded(str(error)) from error
            if kind not in NO_SUCH_ANSWER:
                self.failed[name] = "needs root" if kind == "NVML_ERROR_NO_PERMISSION" else str(error)
        except self.pynvml.NVMLLibraryMismatchError:
            pass  # the binding's wrapper of a call that this driver has in an older version only
        return None

    def first(self, names: tuple[str, ...], *arguments: Any) -> Any:
        """The answer of the first call that has one: a call goes by several names over the years."""
        for name in names:
            if (answer := self.ask(name, *arguments)) is not None:
                return answer
        return None

    def error_name(self, error: Exception) -> str:
        """`NVML_ERROR_GPU_IS_LOST` and kin; empty for a number the binding does not know."""
        return self._error_names.get(getattr(error, "value", None), "")

    def handles(self) -> list[Any]:
        """One a board, in PCI order; in the place of one that gives none, the error. Raises NotRead without a count."""
        try:
            count = self.pynvml.nvmlDeviceGetCount()
        except self.pynvml.NVMLError as error:
            raise NotRead(f"NVML does not count the boards: {error}") from error
        found: list[Any] = []
        for index in range(count):
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

    def bus_id(self, handle: Any) -> str | None:
        """`00000000:0F:00.0`."""
        pci = self.ask("nvmlDeviceGetPciInfo", handle)
        return None if pci is None else text(pci.busId)

    def slot(self, handle: Any) -> str | None:
        """`0000:0f:00.0`: its folder in /sys/bus/pci/devices."""
        try:
            return sysfs_name(self.bus_id(handle) or "")
        except ValueError:
            return None


def text(answer: Any) -> str | None:
    """Bytes or text, as the version of the binding gives it."""
    if isinstance(answer, bytes):
        return answer.decode(errors="replace")
    return answer if isinstance(answer, str) else None


def named(names: tuple[str | None, ...], number: int | None) -> str | None:
    """The name of an enumeration's number; None for one that is newer than the names."""
    return names[number] if number is not None and 0 <= number < len(names) else None


def sysfs_name(bus_id: str) -> str:
    """`0000:0f:00.0`, as sysfs writes what NVML calls `00000000:0F:00.0`. Raises ValueError for anything else."""
    domain, _, rest = bus_id.partition(":")
    return f"{int(domain, 16):04x}:{rest.lower()}"


@contextmanager
def started(system: System, load: Callable[[], Any] | None = None) -> Iterator[Nvml]:
    """NVML of this machine. Raises NotRead where there is none, or it does not start, with its words."""
    if not system.live:
        raise NotRead("NVML tells of this machine alone, not of a recorded one")
    if load is None and not installed():
        raise NotRead(NO_LIBRARY)
    try:
        pynvml = (load or _load)()
    except ImportError as error:
        raise NotRead(f"nvidia-ml-py does not import: {error}") from error
    nvml = Nvml(pynvml)
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        if nvml.error_name(error) == "NVML_ERROR_LIBRARY_NOT_FOUND":
            raise NotRead(NO_LIBRARY) from error
        raise NotRead(f"NVML does not start: {error}") from error
    try:
        yield nvml
    finally:
        # What was read stays read.
        with suppress(pynvml.NVMLError):
            pynvml.nvmlShutdown()


def installed() -> bool:
    """The driver's library can be loaded. Asked first: importing NVML's binding costs a tenth of a quick check."""
    if "pynvml" in sys.modules:
        return True  # nothing is left to save; the binding tells it itself
    import ctypes

    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError as error:
        # A library that is there and does not load has more to say: the binding then says it.
        return sys.platform == "win32" or "No such file" not in str(error)
    return True


def _load() -> Any:
    import pynvml

    return pynvml
