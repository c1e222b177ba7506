"""NVML as it answers on machines of several kinds: the real binding's names, signatures and errors, made-up boards."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml

MIB = 2**20
LOST, NOT_ALLOWED, UNSUPPORTED, UNKNOWN = 15, 4, 3, 999


class Refuses:
    """In the place of an answer: NVML's error of that number."""

    def __init__(self, code: int) -> None:
        self.code = code


class Board:
    """Answers by the name of the call without `nvmlDeviceGet`; what is not there is not supported.

    An answer that can be called is given the arguments behind the handle.
    """

    def __init__(self, **answers: Any) -> None:
        self.answers = answers

    def but(self, **answers: Any) -> Board:
        return Board(**{**self.answers, **answers})


class Machine:
    """Stands for the module pynvml. A board may be a Refuses, which is what its handle then costs."""

    def __init__(self, *boards: Board | Refuses, start: int = 0, ancestor: int = 50, peers: int = 0) -> None:
        self.boards = boards
        self.start = start
        self.ancestor = ancestor
        self.peers = peers
        self.asked: list[str] = []
        self.stopped = False

    def __dir__(self) -> list[str]:
        return dir(pynvml)

    def __getattr__(self, name: str) -> Any:
        real = getattr(pynvml, name)
        if not name.startswith("nvml") or not callable(real):
            return real

        def call(*arguments: Any) -> Any:
            inspect.signature(real).bind(*arguments)
            self.asked.append(name)
            return self._answer(name, arguments)

        return call

    def _answer(self, name: str, arguments: tuple[Any, ...]) -> Any:
        match name:
            case "nvmlInit":
                return self._value(Refuses(self.start) if self.start else None, ())
            case "nvmlShutdown":
                self.stopped = True
                return None
            case "nvmlDeviceGetCount":
                return len(self.boards)
            case "nvmlDeviceGetHandleByIndex":
                return self._value(self.boards[arguments[0]], ())
            case "nvmlDeviceGetTopologyCommonAncestor":
                return self.ancestor
            case "nvmlDeviceGetP2PStatus" if "P2PStatus" not in arguments[0].answers:
                return self.peers
        answers = arguments[0].answers
        return self._value(answers.get(name.removeprefix("nvmlDeviceGet"), Refuses(UNSUPPORTED)), arguments[1:])

    @staticmethod
    def _value(answer: Any, arguments: tuple[Any, ...]) -> Any:
        if callable(answer):
            answer = answer(*arguments)
        if isinstance(answer, Refuses):
            raise pynvml.NVMLError(answer.code)
        return answer


def memory(total: int, used: int, reserved: int) -> Callable[..., Any]:
    """Both versions of the call, in MiB: the first counts what the driver keeps as used."""

    def answer(version: int | None = None) -> Any:
        if version is None:
            return SimpleNamespace(total=total * MIB, used=(used + reserved) * MIB)
        return SimpleNamespace(total=total * MIB, used=used * MIB, reserved=reserved * MIB)

    return answer


def process(pid: int, held_mib: int | None) -> Any:
    return SimpleNamespace(pid=pid, usedGpuMemory=None if held_mib is None else held_mib * MIB)


def fields(**values: int) -> Callable[[list[int]], list[Any]]:
    """Field values by number, written `f230`; others are not supported."""

    def answer(numbers: list[int]) -> list[Any]:
        return [
            SimpleNamespace(
                nvmlReturn=0 if f"f{number}" in values else UNSUPPORTED,
                value=SimpleNamespace(uiVal=values.get(f"f{number}", 0)),
            )
            for number in numbers
        ]

    return answer


def fabric(state: int, status: int = 0, health: int = 1) -> Callable[[Any], int]:
    """Fills the struct, as the library does."""

    def answer(info: Any) -> int:
        struct = info._obj
        struct.state, struct.status = state, status
        if hasattr(struct, "healthSummary"):
            struct.healthSummary = health
        return 0

    return answer


def h100(index: int = 0) -> Board:
    """SXM, idle, on an HGX board of eight."""
    return Board(
        Name="NVIDIA H100 80GB HBM3",
        UUID=f"GPU-{index:08x}-0000-0000-0000-000000000000",
        Serial="1650000000000",
        VbiosVersion="96.00.A5.00.01",
        CudaComputeCapability=(9, 0),
        PciInfo=SimpleNamespace(busId=f"00000000:{0x10 + index:02X}:00.0".encode()),
        CurrPcieLinkGeneration=5,
        MaxPcieLinkGeneration=5,
        CurrPcieLinkWidth=16,
        MaxPcieLinkWidth=16,
        PcieReplayCounter=0,
        MemoryInfo=memory(81559, 1, 610),
        UtilizationRates=SimpleNamespace(gpu=0, memory=0),
        ComputeRunningProcesses=(),
        GraphicsRunningProcesses=(),
        MPSComputeRunningProcesses=(),
        Temperature=31,
        PowerUsage=69_900,
        EnforcedPowerLimit=700_000,
        PowerManagementDefaultLimit=700_000,
        ClockInfo=345,
        MaxClockInfo=1980,
        ApplicationsClock=1980,
        DefaultApplicationsClock=1980,
        CurrentClocksEventReasons=0x1,
        PerformanceState=0,
        PersistenceMode=1,
        ComputeMode=0,
        VirtualizationMode=0,
        MigMode=[0, 0],
        EccMode=[1, 1],
        TotalEccErrors=0,
        RemappedRows=(0, 0, 0, 0),
        FieldValues=fields(f230=0, f91=18),
        InforomConfigurationChecksum=3735928559,
        GpuFabricInfoV=fabric(state=3),
        CpuAffinity=lambda words: [0xFF] + [0] * (words - 1),
        NvLinkState=1,
        NvLinkRemoteDeviceType=2,
        NvLinkErrorCounter=0,
    )


def geforce() -> Board:
    """No ECC, no NVLink, no MIG, no fabric; a desktop on it, on a driver before 535."""
    return Board(
        Name=b"NVIDIA GeForce RTX 4090",
        UUID=b"GPU-00000000-4090-0000-0000-000000000000",
        CudaComputeCapability=(8, 9),
        PciInfo=SimpleNamespace(busId="00000000:01:00.0"),
        CurrPcieLinkGeneration=1,
        MaxPcieLinkGeneration=4,
        CurrPcieLinkWidth=16,
        MaxPcieLinkWidth=16,
        MemoryInfo=memory(24564, 412, 320),
        UtilizationRates=SimpleNamespace(gpu=3, memory=1),
        ComputeRunningProcesses=[process(2000, 60)],
        GraphicsRunningProcesses=[process(1000, 350), process(2000, 60)],
        CurrentClocksThrottleReasons=0x1,
        PerformanceState=8,
        PersistenceMode=0,
        ComputeMode=0,
    )


def wsl() -> Board:
    """Many calls unsupported, memory by process not told."""
    return Board(
        Name="NVIDIA GeForce RTX 3080",
        UUID="GPU-00000000-3080-0000-0000-000000000000",
        PciInfo=SimpleNamespace(busId="00000000:01:00.0"),
        MemoryInfo=memory(10240, 1200, 200),
        UtilizationRates=SimpleNamespace(gpu=12, memory=4),
        ComputeRunningProcesses=[process(4242, None)],
        PersistenceMode=1,
    )


def mig(*instances: str) -> Board:
    """MIG on, asked without root: the board's own processes are refused."""

    def instance(index: int) -> Any:
        if index >= len(instances):
            return Refuses(6)
        return Board(Name="NVIDIA A100-SXM4-40GB MIG 3g.20gb", UUID=instances[index], MemoryInfo=memory(19968, 12, 0))

    return h100().but(
        Name="NVIDIA A100-SXM4-40GB",
        MigMode=[1, 1],
        MaxMigDeviceCount=7,
        MigDeviceHandleByIndex=instance,
        ComputeRunningProcesses=Refuses(NOT_ALLOWED),
        GraphicsRunningProcesses=Refuses(UNSUPPORTED),
        MPSComputeRunningProcesses=Refuses(UNSUPPORTED),
        UtilizationRates=Refuses(UNSUPPORTED),
    )
