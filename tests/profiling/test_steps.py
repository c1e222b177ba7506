"""Step boundaries in the loops people write."""

import pytest

from gpudoctor.profiling.agent.steps import FETCHES_BEFORE_OPTIMIZER, FETCHES_WITHOUT_OPTIMIZER, Steps


def _run(steps: Steps, calls: str) -> list[int]:
    """`f` a fetch, a digit a step of that optimizer; returns the positions at which a step ended."""
    return [
        position
        for position, call in enumerate(calls)
        if (steps.fetch() if call == "f" else steps.optimizer_step(int(call)))
    ]


def test_a_plain_loop_closes_its_step_at_the_next_fetch() -> None:
    steps = Steps()
    assert _run(steps, "f1f1f1") == [2, 4]
    assert (steps.loop, steps.count, steps.accumulation) == ("optimizer", 2, 1)


def test_a_loop_without_loader_closes_its_step_at_the_next_optimizer_step() -> None:
    assert _run(Steps(), "111") == [1, 2]


def test_gradient_accumulation_shows_in_the_fetches_of_a_step() -> None:
    steps = Steps()
    assert _run(steps, "ffff1ffff1f") == [5, 10]
    assert steps.accumulation == 4


def test_evaluation_between_steps_does_not_change_the_accumulation() -> None:
    steps = Steps()
    _run(steps, "f1f1f1ffffff" + "f1f1f")
    assert steps.accumulation == 1


def test_a_gan_steps_two_optimizers_a_step() -> None:
    steps = Steps()
    assert _run(steps, "f12f12f12f") == [3, 6, 9]
    assert dict(steps.optimizer_steps) == {1: 3, 2: 3}


def test_several_critic_steps_a_generator_step_are_led_by_the_critic() -> None:
    assert _run(Steps(), "f1f1f12f1f1f12f") == [2, 4, 7, 9, 11, 14]


def test_another_optimizer_takes_over_from_a_leader_that_has_stopped() -> None:
    steps = Steps()
    _run(steps, "f1f1")
    assert _run(steps, "f2" * 6) == [0, 8, 10]


@pytest.mark.parametrize("fetches", [FETCHES_WITHOUT_OPTIMIZER, FETCHES_WITHOUT_OPTIMIZER + 3])
def test_the_loader_counts_where_no_optimizer_steps(fetches: int) -> None:
    steps = Steps()
    assert len(_run(steps, "f" * fetches)) == fetches - FETCHES_WITHOUT_OPTIMIZER


def test_an_optimizer_that_comes_late_takes_over_from_the_loader() -> None:
    steps = Steps()
    _run(steps, "f" * 12)
    _run(steps, "1f")
    assert steps.loop == "optimizer"


def test_batches_before_the_first_step_of_an_optimizer_are_gathered_gradients() -> None:
    steps = Steps()
    steps.optimizer_made()
    assert _run(steps, ("f" * 32 + "1") * 2 + "f") == [33, 66]
    assert (steps.loop, steps.accumulation) == ("optimizer", 32)


def test_an_optimizer_that_never_steps_leaves_the_steps_to_the_loader() -> None:
    steps = Steps()
    steps.optimizer_made()
    assert len(_run(steps, "f" * (FETCHES_BEFORE_OPTIMIZER + 3))) == 3
    assert steps.guessed


def test_backward_passes_count_where_there_is_neither_loader_nor_optimizer() -> None:
    steps = Steps()
    assert sum(steps.backward() for _ in range(FETCHES_WITHOUT_OPTIMIZER + 3)) == 3
    assert (steps.loop, steps.guessed) == ("backward", True)


def test_backward_passes_do_not_count_beside_a_loader_or_an_optimizer() -> None:
    for calls in ("f", "1"):
        steps = Steps()
        _run(steps, calls)
        assert not any(steps.backward() for _ in range(20))
