"""The ranks' kernels beside each other: a slow GPU takes longer for the same, uneven work is more of it."""

from __future__ import annotations

from collections.abc import Sequence

from gpudoctor.facts.run import KernelStats, Pace, Rank

MIN_KINDS = 3
"""Kinds of kernels a comparison needs: one or two may differ for reasons of their own."""
MIN_ALIKE = 0.7
"""Share of launches that must be the others' too before a GPU is called slow; see `Pace.alike`."""


def paces(ranks: Sequence[Rank]) -> tuple[Pace, ...]:
    """One a rank; none where fewer than two ranks have kernels."""
    measured = [(rank, rank.kernels) for rank in ranks if rank.kernels is not None and rank.kernels.count]
    if len(measured) < 2:
        return ()
    medians = [_medians(stats) for _, stats in measured]
    common = _common(medians)
    alike = [
        sum(group.count for group in stats.groups if (group.name, group.grid) in common) / stats.count
        for _, stats in measured
    ]
    slowdowns = [
        _slowdown(stats, own, common) if len(common) >= MIN_KINDS and same >= MIN_ALIKE else None
        for (_, stats), own, same in zip(measured, medians, alike, strict=True)
    ]
    per_step = [stats.duration_ns / (rank.steps or 1) for rank, stats in measured]
    work = [
        _counted(stats, own, common) / (rank.steps or 1) if rank.device == "cpu" else duration / (slow or 1.0)
        for (rank, stats), own, duration, slow in zip(measured, medians, per_step, slowdowns, strict=True)
    ]
    counts = [stats.count / (rank.steps or 1) for rank, stats in measured]
    return tuple(
        Pace(
            rank=rank.rank,
            slowdown=slowdowns[index],
            alike=alike[index],
            work=work[index] / _middle(work) if _middle(work) else None,
            kernels=counts[index] / _middle(counts),
            excess_ms=(per_step[index] - _middle(per_step)) / 1e6,
        )
        for index, (rank, _) in enumerate(measured)
    )


def _medians(stats: KernelStats) -> dict[tuple[str, str], float]:
    """Duration of one launch by kernel and grid."""
    return {(group.name, group.grid): float(group.median_ns) for group in stats.groups if group.median_ns}


def _common(medians: list[dict[tuple[str, str], float]]) -> dict[tuple[str, str], float]:
    """The middle duration of each kernel and grid that more than half of the ranks run."""
    durations: dict[tuple[str, str], list[float]] = {}
    for own in medians:
        for key, duration in own.items():
            durations.setdefault(key, []).append(duration)
    return {key: _middle(values) for key, values in durations.items() if 2 * len(values) > len(medians)}


def _middle(values: list[float]) -> float:
    """The median, of an even number the lower of the middle two: of two ranks the quicker is the measure."""
    return sorted(values)[(len(values) - 1) // 2]


def _counted(stats: KernelStats, own: dict[tuple[str, str], float], common: dict[tuple[str, str], float]) -> float:
    """Work as operators times what each usually takes: ranks on shared CPUs slow each other down at random."""
    keys = ((group.count, (group.name, group.grid)) for group in stats.groups)
    return sum(count * common.get(key, own.get(key, 0.0)) for count, key in keys)


def _slowdown(
    stats: KernelStats, own: dict[tuple[str, str], float], common: dict[tuple[str, str], float]
) -> float | None:
    """Median over kernels of the own duration over the common one, each kernel weighing what it takes.

    Unweighted, kernels of two microseconds would decide, and most of those is the launch, which no clock speeds up.
    """
    weights = {
        (group.name, group.grid): common[group.name, group.grid] * group.count
        for group in stats.groups
        if (group.name, group.grid) in common
    }
    left = sum(weights.values()) / 2
    for key in sorted(weights, key=lambda key: own[key] / common[key]):
        left -= weights[key]
        if left <= 0:
            return own[key] / common[key]
    return None
