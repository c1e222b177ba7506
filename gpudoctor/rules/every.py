"""The rules on jobs, in report order, and all rules together."""

from typing import Any

from gpudoctor.findings import Rule
from gpudoctor.rules import (
    MACHINE_RULES,
    buckets,
    communication,
    host_time,
    kernels,
    loader,
    memory,
    ranks,
    run,
    sharing,
)
from gpudoctor.run import Run

RUN_RULES: tuple[Rule[Run], ...] = (
    *run.RULES,
    *loader.RULES,
    *communication.RULES,
    *ranks.RULES,
    *buckets.RULES,
    *memory.RULES,
    *sharing.RULES,
    *host_time.RULES,
    *kernels.RULES,
)
"""Judge a Run."""

ALL_RULES: tuple[Rule[Any], ...] = (
    *(rule for rule in MACHINE_RULES if rule.code not in {judged.code for judged in RUN_RULES}),
    *RUN_RULES,
)
"""What `explain` and `rules` tell of, and policies name: each code once, as a profile judges it where both do."""
