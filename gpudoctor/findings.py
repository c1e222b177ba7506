"""What is wrong: a rule looks at facts and yields evidence, `diagnose` makes findings of it."""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Literal, TypeVar

import msgspec

Subject = TypeVar("Subject")
"""What a rule judges: a Snapshot or a Run."""

Confidence = Literal["certain", "likely"]
Safety = Literal["safe", "needs root", "slower", "restarts", "destructive"]


class Severity(enum.Enum):
    """Error: the job fails, hangs or gives wrong numbers. Warning: slower, fragile or unsafe. Info: good to know."""

    ERROR = "error"
    WARNING = "warning"
    INFO = "info"

    @property
    def rank(self) -> int:
        """0 for the worst."""
        return list(Severity).index(self)


class Fix(msgspec.Struct, frozen=True):
    """One way out. `command` can be pasted as it is."""

    text: str
    command: str | None = None
    safety: Safety = "safe"


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What a profile finding costs a step."""

    share_of_step: float
    """0 to 1."""
    step_ms_now: float
    step_ms_at_best: float
    """The step without that share, never below the next bound."""


class Evidence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a rule saw. The fields from `where` on move into the finding."""

    what: str
    seen: str
    wanted: str
    source: str | None = None
    """Where `wanted` comes from; None means the rule's own source."""
    where: str = ""
    """GPU, rank, file or variable: `GPU 1`, `rank 3`, `/dev/shm`, `NCCL_P2P_DISABLE`; empty for the whole machine."""
    severity: Severity | None = None
    """None means the rule's own."""
    confidence: Confidence = "certain"
    fix: tuple[Fix, ...] = ()
    """Empty means the rule's own."""
    cost: Cost | None = None


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One rule that fired at one place."""

    code: str
    name: str
    severity: Severity
    confidence: Confidence
    where: str
    evidence: tuple[Evidence, ...]
    why: str
    fix: tuple[Fix, ...]
    cost: Cost | None = None
    consequences: tuple[str, ...] = ()
    """Codes of the findings that follow from this one and are not reported on their own."""


class Rule(msgspec.Struct, Generic[Subject], frozen=True):
    """A value and a function. All its texts are written once, here."""

    code: str
    name: str
    severity: Severity
    why: str
    fix: tuple[Fix, ...]
    confirm: str
    """Command or look that shows the same fact without gpudoctor."""
    source: str
    """Where the threshold or the statement is known from."""
    judge: Callable[[Subject], Iterator[Evidence]]
    because: tuple[str, ...] = ()
    """Codes that explain this one: where one of them fires, this finding is folded under it."""

    @property
    def area(self) -> str:
        """The letters of the code."""
        return self.code[:3]

    @property
    def fires_when(self) -> str:
        """First paragraph of the function's docstring."""
        return " ".join((self.judge.__doc__ or "").strip().split("\n\n")[0].split())

    @property
    def silent_when(self) -> str:
        """The rest of the docstring: the false alarms avoided; may be empty."""
        return " ".join(" ".join((self.judge.__doc__ or "").strip().split("\n\n")[1:]).split())


def rule(
    code: str,
    name: str,
    severity: Severity,
    *,
    why: str,
    fix: Fix | tuple[Fix, ...],
    confirm: str,
    source: str,
    because: tuple[str, ...] = (),
) -> Callable[[Callable[[Subject], Iterator[Evidence]]], Rule[Subject]]:
    """Make a Rule of a generator function. The function's docstring says when it fires and when it stays silent."""

    def make(judge: Callable[[Subject], Iterator[Evidence]]) -> Rule[Subject]:
        fixes = fix if isinstance(fix, tuple) else (fix,)
        return Rule(code, name, severity, why, fixes, confirm, source, judge, because)

    return make


class Diagnosis(msgspec.Struct, frozen=True):
    """`broken` names rules that raised, a defect of ours that must not hide the other findings."""

    findings: tuple[Finding, ...]
    broken: dict[str, str]


def diagnose(subject: Subject, rules: Iterable[Rule[Subject]]) -> Diagnosis:
    """Ask every rule: worst first, then dearest, then in the order of the rules; consequences folded under causes."""
    found: list[tuple[Rule[Subject], Finding]] = []
    broken: dict[str, str] = {}
    for asked in rules:
        try:
            found.extend((asked, finding) for finding in _findings(asked, subject))
        except Exception as error:
            broken[asked.code] = f"{type(error).__name__}: {error}"
    findings = sorted(_folded(found), key=lambda finding: (finding.severity.rank, -_share(finding)))
    return Diagnosis(tuple(findings), broken)


def _findings(asked: Rule[Subject], subject: Subject) -> Iterator[Finding]:
    """One finding for each place, its evidence together."""
    by_place: dict[tuple[str, Severity], list[Evidence]] = {}
    for evidence in asked.judge(subject):
        by_place.setdefault((evidence.where, evidence.severity or asked.severity), []).append(evidence)
    for (where, severity), group in by_place.items():
        fixes = tuple(dict.fromkeys(fix for evidence in group for fix in evidence.fix)) or asked.fix
        yield Finding(
            code=asked.code,
            name=asked.name,
            severity=severity,
            confidence="certain" if any(evidence.confidence == "certain" for evidence in group) else "likely",
            where=where,
            evidence=tuple(
                Evidence(what=item.what, seen=item.seen, wanted=item.wanted, source=item.source or asked.source)
                for item in group
            ),
            why=asked.why,
            fix=fixes,
            cost=next((evidence.cost for evidence in group if evidence.cost), None),
        )


def _folded(found: list[tuple[Rule[Subject], Finding]]) -> Iterator[Finding]:
    """Only the roots, each with the codes that follow from it."""
    worst: dict[str, int] = {}
    for _, finding in found:
        worst[finding.code] = min(worst.get(finding.code, finding.severity.rank), finding.severity.rank)

    def explains(cause: str, code: str) -> bool:
        # A cause may not hide what is worse than itself, and an info, which is no fault, hides nothing.
        return cause in worst and worst[cause] <= worst[code] and worst[cause] < Severity.INFO.rank

    parent = {
        asked.code: next((code for code in asked.because if explains(code, asked.code)), None) for asked, _ in found
    }

    def root(code: str) -> str:
        path = [code]
        while (above := parent.get(path[-1])) is not None:
            if above in path:
                # Rules that blame each other: the first of them stands for all.
                return next(code for code in parent if code in path)
            path.append(above)
        return path[-1]

    followers: dict[str, list[str]] = {}
    for code in parent:
        if (top := root(code)) != code:
            followers.setdefault(top, []).append(code)
    told: set[str] = set()
    for _, finding in found:
        if root(finding.code) != finding.code:
            continue
        follows = () if finding.code in told else tuple(followers.get(finding.code, ()))
        told.add(finding.code)
        yield msgspec.structs.replace(finding, consequences=follows)


def _share(finding: Finding) -> float:
    return finding.cost.share_of_step if finding.cost else 0.0
