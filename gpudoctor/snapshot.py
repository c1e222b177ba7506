"""One machine at one moment: its facts, and what could not be read."""

from __future__ import annotations

import msgspec

from gpudoctor.facts.base import Fact, Subject
from gpudoctor.facts.clock import Clock
from gpudoctor.facts.container import Container
from gpudoctor.facts.cpu import Cpu
from gpudoctor.facts.disks import Disks
from gpudoctor.facts.driver import Driver
from gpudoctor.facts.environment import Environment
from gpudoctor.facts.errors import Errors, ErrorText
from gpudoctor.facts.expected import Expected
from gpudoctor.facts.exposure import Exposure
from gpudoctor.facts.gpu import Gpus
from gpudoctor.facts.host import Host
from gpudoctor.facts.kernel_log import KernelLog
from gpudoctor.facts.libraries import Libraries
from gpudoctor.facts.limits import Limits
from gpudoctor.facts.measured import Measured
from gpudoctor.facts.nccl_log import NcclLog
from gpudoctor.facts.network import Network
from gpudoctor.facts.packages import Packages
from gpudoctor.facts.shm import Shm
from gpudoctor.facts.topology import Topology
from gpudoctor.facts.torch import TorchBuild, TorchRuntime

SCHEMA = 1


class SnapshotError(ValueError):
    """A text is no snapshot of a schema this version reads."""


class Snapshot(Fact, frozen=True, kw_only=True, omit_defaults=False):
    """Every subject is None where it was not read; `unread` then says why."""

    schema: int = SCHEMA
    taken_at: str | None = None
    """UTC, ISO 8601."""
    host: Host | None = None
    gpus: Gpus | None = None
    topology: Topology | None = None
    driver: Driver | None = None
    torch: TorchBuild | None = None
    torch_runtime: TorchRuntime | None = None
    packages: Packages | None = None
    libraries: Libraries | None = None
    container: Container | None = None
    shm: Shm | None = None
    limits: Limits | None = None
    cpu: Cpu | None = None
    disks: Disks | None = None
    clock: Clock | None = None
    kernel_log: KernelLog | None = None
    environment: Environment | None = None
    network: Network | None = None
    exposure: Exposure | None = None
    measured: Measured | None = None
    errors: Errors | None = None
    nccl_log: NcclLog | None = None
    expected: Expected = Expected()
    """From the policy, not from the machine."""
    unread: dict[str, str] = {}
    """Subject → why it was not read. A subject in neither place was not asked for."""

    def not_read(self) -> dict[str, str]:
        """`subject` or `subject.part` → reason, the parts of read subjects included."""
        parts = {
            f"{name}.{part}": reason
            for name in SUBJECTS
            if (fact := getattr(self, name)) is not None
            for part, reason in fact.unread.items()
        }
        return {**self.unread, **parts}

    def told(self, *kinds: str) -> tuple[ErrorText, ...]:
        """Recognised error texts of some kinds; empty where no text was read."""
        return self.errors.of(*kinds) if self.errors is not None else ()

    def gpu_count(self) -> int | None:
        """GPUs a job started here would see: torch's count, else NVML's boards under CUDA_VISIBLE_DEVICES.

        None where neither answered.
        """
        if self.torch_runtime is not None and self.torch_runtime.device_count is not None:
            return self.torch_runtime.device_count
        if self.gpus is None:
            return None
        boards = len(self.gpus.boards)
        visible = self.environment.get("CUDA_VISIBLE_DEVICES") if self.environment else None
        return boards if visible is None else min(boards, len([part for part in visible.split(",") if part.strip()]))

    def capabilities(self) -> dict[int, str]:
        """Compute capability of each GPU a job started here would see, by torch's device number or else NVML's index.

        Empty where none is known, and on ROCm, whose numbers mean something else.
        """
        runtime, build = self.torch_runtime, self.torch
        if (runtime is not None and runtime.rocm) or (build is not None and build.build == "rocm"):
            return {}
        if runtime is not None and runtime.capabilities:
            return dict(enumerate(runtime.capabilities))
        boards = self.gpus.boards if self.gpus else ()
        known = {board.index: board.compute_capability for board in boards if board.compute_capability}
        visible = self.environment.get("CUDA_VISIBLE_DEVICES") if self.environment else None
        if visible is None:
            return known
        named = [part.strip() for part in visible.split(",") if part.strip()]
        if named and len(set(known.values())) == 1:
            return known
        # Boards of different models: numbers follow CUDA's own order, so only names tell which are seen.
        names = tuple(part for part in named if part.startswith("GPU-"))
        return {
            board.index: known[board.index]
            for board in boards
            if (board.uuid or "").startswith(names or ("?",)) and board.index in known
        }

    def to_json(self) -> bytes:
        """One line of JSON that `from_json` takes back unchanged."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, text: bytes | str) -> Snapshot:
        """Raises SnapshotError where the text is none, or of a newer schema."""
        try:
            snapshot = msgspec.json.decode(text, type=cls)
        except (msgspec.DecodeError, UnicodeError) as error:
            raise SnapshotError(str(error)) from error
        if snapshot.schema > SCHEMA:
            raise SnapshotError(f"schema {snapshot.schema} is newer than the {SCHEMA} this version reads")
        return snapshot


SUBJECTS: tuple[str, ...] = tuple(
    name for name in Snapshot.__struct_fields__ if name not in {"schema", "taken_at", "expected", "unread"}
)
"""Names of the subjects, in the order they are read and reported."""

TEXT_SUBJECTS = frozenset({"errors", "nccl_log"})
"""Those that only texts give: no probe reads them, and a machine that was looked at lacks nothing without them."""

DEEP_SUBJECTS = frozenset({"measured"})
"""Those that only `check --deep` reads."""

__all__ = ["DEEP_SUBJECTS", "SCHEMA", "SUBJECTS", "TEXT_SUBJECTS", "Snapshot", "SnapshotError", "Subject"]
