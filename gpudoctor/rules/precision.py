"""Rules on number formats: what torch is set to, what the cards can do."""

from collections.abc import Iterator

from gpudoctor.findings import Evidence, Fix, Rule, Severity, rule
from gpudoctor.rules import cards
from gpudoctor.rules.launch import without_gpus
from gpudoctor.rules.trials import wrong_products
from gpudoctor.snapshot import Snapshot

AMPERE = (8, 0)
"""First compute capability with TF32 and bf16 in hardware (CUDA programming guide, arithmetic by capability)."""
VOLTA = (7, 0)
"""First with tensor cores (same source)."""
CUBLAS_OVERRIDE = "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE"
NVIDIA_OVERRIDE = "NVIDIA_TF32_OVERRIDE"


@rule(
    "PRE001",
    "tf32-off",
    Severity.INFO,
    why="float32 products run without tensor cores: several times slower on data-centre cards, little on GeForce",
    fix=Fix(
        "where three decimal digits suffice in products, add to the script: torch.set_float32_matmul_precision('high')"
    ),
    confirm='python -c "import torch; print(torch.get_float32_matmul_precision())"',
    source="PyTorch notes on CUDA, TensorFloat-32: off for matmul by default since 1.12",
)
def tf32_off(machine: Snapshot) -> Iterator[Evidence]:
    """The card can do TF32 (8.0 and newer) and torch's float32 products are set to "highest", its default.

    Silent where the policy asks for fp32.
    """
    precision = machine.torch_runtime.precision if machine.torch_runtime is not None else None
    if precision is None or precision.float32_matmul != "highest" or machine.expected.precision == "fp32":
        return
    if precision.matmul_fp32_precision == "tf32":  # set by the newer switch, which the older one does not show
        return
    able = [index for index, capability in machine.capabilities().items() if cards.number(capability) >= AMPERE]
    if able:
        yield Evidence(where=cards.gpus(able), what="float32 matmul precision", seen="highest", wanted="high (TF32)")


@rule(
    "PRE002",
    "bf16-emulated",
    Severity.WARNING,
    why="bf16 is computed through float32 here: slower than either, and no memory bandwidth is won in the products",
    fix=Fix("train in fp16 with torch.amp.GradScaler, or on a card of capability 8.0 or newer"),
    confirm='python -c "import torch; print(torch.cuda.is_bf16_supported(including_emulation=False))"',
    source="CUDA programming guide: bf16 from compute capability 8.0 on",
)
def bf16_emulated(machine: Snapshot) -> Iterator[Evidence]:
    """bf16 is wanted by the policy or the job, and a card is below 8.0.

    Silent where nobody asks for bf16.
    """
    if "bf16" not in _wanted(machine):
        return
    below = {
        index: capability for index, capability in machine.capabilities().items() if cards.number(capability) < AMPERE
    }
    for capability, indices in cards.by_capability(below).items():
        yield Evidence(where=cards.gpus(indices), what="compute capability", seen=capability, wanted="8.0 or newer")


@rule(
    "PRE003",
    "no-tensor-cores",
    Severity.INFO,
    why="mixed precision saves memory on this card but brings little speed",
    fix=Fix("choose a card of capability 7.0 or newer for mixed-precision training"),
    confirm="nvidia-smi --query-gpu=name,compute_cap --format=csv",
    source="CUDA programming guide: tensor cores from compute capability 7.0 on; GTX 16 boards (7.5) have none",
)
def no_tensor_cores(machine: Snapshot) -> Iterator[Evidence]:
    """A card is below 7.0, or a GTX 16 (7.5 without tensor cores).

    Silent where the capability is not known.
    """
    names = _names(machine)
    for index, capability in machine.capabilities().items():
        if (0, 0) < cards.number(capability) < VOLTA or "GTX 16" in names.get(index, ""):
            yield Evidence(
                where=cards.gpus([index]),
                what="tensor cores",
                seen=f"none ({names.get(index, 'compute capability ' + capability)})",
                wanted="compute capability 7.0 or newer",
            )


def _names(machine: Snapshot) -> dict[int, str]:
    runtime = machine.torch_runtime
    if runtime is not None and runtime.device_names:
        return dict(enumerate(runtime.device_names))
    return {board.index: board.name for board in (machine.gpus.boards if machine.gpus else ()) if board.name}


@rule(
    "PRE004",
    "tf32-forced",
    Severity.WARNING,
    why="the variable decides over what the script sets, so float32 results and speed differ from what its code says",
    fix=(
        Fix("leave it to the script", f"unset {NVIDIA_OVERRIDE} {CUBLAS_OVERRIDE}"),
        Fix("and say it there: torch.set_float32_matmul_precision('high')"),
    ),
    confirm="env | grep TF32",
    source="PyTorch docs, CUDA environment variables",
)
def tf32_forced(machine: Snapshot) -> Iterator[Evidence]:
    """NVIDIA_TF32_OVERRIDE or TORCH_ALLOW_TF32_CUBLAS_OVERRIDE is set, and no card here is known to lack TF32.

    Silent where the policy asks for the format the variable forces; info in NVIDIA's images, which set torch's.
    """
    capabilities = machine.capabilities().values()
    if without_gpus(machine) or (
        capabilities and not any(cards.number(capability) >= AMPERE for capability in capabilities)
    ):
        return
    for name, value in _overrides(machine).items():
        forced = "fp32" if value == "0" else "tf32"
        if machine.expected.precision != forced:
            seen = f"{value}: TF32 is {'off' if forced == 'fp32' else 'on'}"
            severity = Severity.INFO if _set_by_image(machine, name) else None
            yield Evidence(where=name, what="variable", seen=seen, wanted="unset", severity=severity)


@rule(
    "PRE009",
    "tf32-unsupported",
    Severity.WARNING,
    why="the card has no TF32: the setting does nothing, or the script refuses to run",
    fix=Fix("drop the setting, and use fp16 with torch.amp.GradScaler where the card has tensor cores (7.0 and newer)"),
    confirm='python -c "import torch; print(torch.cuda.get_device_capability())"',
    source="CUDA programming guide: TF32 from compute capability 8.0 on",
)
def tf32_unsupported(machine: Snapshot) -> Iterator[Evidence]:
    """TF32 is asked for (policy, job or variable) and no card here is 8.0 or newer.

    Silent where one card can: PRE004 and GPU016 speak of those. Info in NVIDIA's images, which set torch's variable.
    """
    capabilities = machine.capabilities()
    if not capabilities or any(cards.number(capability) >= AMPERE for capability in capabilities.values()):
        return
    asked = [name for name, value in _overrides(machine).items() if value != "0"]
    by_people = "tf32" in _wanted(machine)
    if by_people or asked:
        image_alone = not by_people and all(_set_by_image(machine, name) for name in asked)
        yield Evidence(
            where=cards.gpus(capabilities),
            what="compute capability, TF32 asked by " + ("the job or the policy" if by_people else ", ".join(asked)),
            seen=", ".join(sorted(set(capabilities.values()), key=cards.number)),
            wanted="8.0 or newer",
            severity=Severity.INFO if image_alone else None,
        )


@rule(
    "PRE005",
    "wrong-product",
    Severity.ERROR,
    why="the board computes wrong numbers without any error: losses go bad and checkpoints are spoilt",
    fix=Fix(
        "take the GPU out of use, reset it and run the vendor's diagnostics", "dcgmi diag -r 3", safety="needs root"
    ),
    confirm="dcgmi diag -r 3",
    source="ten times the relative error of an H200: fp32 1.6e-6, TF32 2.9e-4, bf16 1.7e-3, fp16 2.1e-4",
)
def wrong_product(machine: Snapshot) -> Iterator[Evidence]:
    """A product differs from the same product in higher precision by more than its number format allows, or (deep)
    from itself when it is done again.

    Silent where the test raised an error instead: TOR005 and TOR016 tell that.
    """
    for test in (machine.torch_runtime.smoke if machine.torch_runtime is not None else None) or ():
        if not test.ok and test.error is None:
            seen = f"relative error {test.relative_error:.1e}" if test.relative_error is not None else "not a number"
            yield Evidence(where=cards.gpus([test.device]), what="float32 product", seen=seen, wanted="below 5e-3")
    yield from wrong_products(machine)


def _wanted(machine: Snapshot) -> set[str]:
    """Formats the policy and the job ask for."""
    precision = machine.torch_runtime.precision if machine.torch_runtime is not None else None
    named = (machine.expected.precision, precision.wanted if precision is not None else None)
    return {name for name in named if name}


def _overrides(machine: Snapshot) -> dict[str, str]:
    """Variables that decide on TF32, by name: NVIDIA's forces it on (1) or off (0), torch's only on (1)."""
    environment = machine.environment
    values = {name: environment.get(name) if environment else None for name in (NVIDIA_OVERRIDE, CUBLAS_OVERRIDE)}
    allowed = {NVIDIA_OVERRIDE: {"0", "1"}, CUBLAS_OVERRIDE: {"1"}}
    return {name: value for name, value in values.items() if value is not None and value in allowed[name]}


def _set_by_image(machine: Snapshot, name: str) -> bool:
    return name == CUBLAS_OVERRIDE and machine.container is not None and bool(machine.container.image_nvidia)


RULES: tuple[Rule[Snapshot], ...] = (
    tf32_off,
    bf16_emulated,
    no_tensor_cores,
    tf32_forced,
    tf32_unsupported,
    wrong_product,
)
