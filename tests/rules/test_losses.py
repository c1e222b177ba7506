"""What a loss says of ranks and milliseconds."""

from gpudoctor.facts.run import Rank, StepShares
from gpudoctor.rules.losses import cpus_a_rank, lost, ms, named
from gpudoctor.run import Run


def _rank(number: int, loader: float, step_ms: float | None = 200.0) -> Rank:
    return Rank(rank=number, steps=3, step_ms=step_ms, shares=StepShares(loader=loader, compute=1 - loader))


def _share(rank: Rank) -> float | None:
    return rank.shares.loader if rank.shares else None


def test_a_loss_of_all_ranks_names_none() -> None:
    loss = lost([_rank(0, 0.4), _rank(1, 0.6)], _share, 0.1)
    assert loss is not None
    assert (loss.where, loss.share, loss.ms, loss.ranks[0].rank) == ("", 0.5, 100.0, 1)


def test_a_loss_of_one_rank_names_it() -> None:
    loss = lost([_rank(0, 0.0), _rank(1, 0.6)], _share, 0.1)
    assert loss is not None
    assert loss.where == "rank 1"


def test_nothing_is_lost_below_the_bound_or_where_nothing_is_known() -> None:
    assert lost([_rank(0, 0.05), Rank(rank=1)], _share, 0.1) is None


def test_no_step_gets_shorter_than_the_next_bound() -> None:
    loss = lost([_rank(0, 0.5)], _share, 0.1)
    assert loss is not None
    without, bounded = loss.cost(), loss.cost(150.0)
    assert without is not None
    assert bounded is not None
    assert (without.step_ms_at_best, bounded.step_ms_at_best) == (100.0, 150.0)


def test_a_trace_without_steps_has_shares_and_no_milliseconds() -> None:
    loss = lost([_rank(0, 0.5, step_ms=None)], _share, 0.1)
    assert loss is not None
    assert loss.cost() is None
    assert loss.seen == "50% of the trace"


def test_many_ranks_are_counted_not_listed() -> None:
    ranks = [Rank(rank=number) for number in range(6)]
    assert (named(ranks[:2], 64), named(ranks, 64), named(ranks, 6)) == ("ranks 0, 1", "6 of 64 ranks", "")


def test_cpus_are_divided_among_the_ranks_of_a_host(healthy_run: Run) -> None:
    assert cpus_a_rank(healthy_run, healthy_run.ranks[0]) == 28
    assert cpus_a_rank(Run(), Rank(rank=0)) is None


def test_numbers_have_three_figures() -> None:
    assert (ms(224.62), ms(41.84), ms(0.4212)) == ("225", "41.8", "0.421")
