"""Real jobs with the agent in them: what they print, how they end, what is known of them afterwards."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gpudoctor.profiling.folder import agent_errors
from gpudoctor.profiling.launch import LaunchError, Outcome, Plan, command_line, environment, launch

LOOP = """
import os, signal, sys, time
import torch
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(512, 8), torch.randn(512, 1))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def train(steps, each=lambda step: None):
    step = 0
    while True:
        for x, y in DataLoader(data, batch_size=8):
            loss = (model(x) - y).square().mean()
            optimizer.zero_grad(); loss.backward(); optimizer.step()
            each(step)
            step += 1
            if step == steps:
                return loss.item()
"""


def _job(folder: Path, body: str) -> Path:
    script = folder / "job.py"
    script.write_text(LOOP + body)
    return script


def _run(folder: Path, body: str, **options: Any) -> Outcome:
    run = folder / "run"
    run.mkdir()
    command = command_line(sys.executable, [str(_job(folder, body))])
    return launch(Plan(command, run, **{"wait": 2, "steps": 3, **options}), os.environ)


def _records(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(path.read_text()) for path in sorted((folder / "run").glob("process-*.json"))]


def test_a_job_is_traced_and_then_ended_cleanly(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    outcome = _run(tmp_path, "import atexit; atexit.register(print, 'bye'); print(sys.argv, os.getcwd()); train(10**9)")
    assert outcome.exit_code == 0
    assert capfd.readouterr() == (f"{[str(tmp_path / 'job.py')]} {Path.cwd()}\nbye\n", "")
    (record,) = _records(tmp_path)
    assert (record["rank"], record["phase"], record["job"]["agent_error"]) == (0, "done", None)
    assert record["job"]["loop"] == "optimizer"
    trace = json.loads((tmp_path / "run" / record["trace"]).read_text())
    steps = {event["name"] for event in trace["traceEvents"] if str(event.get("name")).startswith("ProfilerStep#")}
    assert len(steps) == 3


def test_a_job_left_to_run_computes_what_it_computes_without_the_agent(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = "print(train(200))"
    assert _run(tmp_path, body, run_to_end=True).exit_code == 0
    watched = capfd.readouterr()
    subprocess.run([sys.executable, str(tmp_path / "job.py")], check=True)
    assert watched == capfd.readouterr()


@pytest.mark.parametrize(
    ("body", "code"),
    [("sys.exit(7)", 7), ("train(9); os._exit(5)", 5), ("train(9); os.kill(os.getpid(), signal.SIGKILL)", 137)],
)
def test_the_exit_code_is_the_job_s_own(body: str, code: int, tmp_path: Path) -> None:
    assert _run(tmp_path, body).exit_code == code


def test_an_exception_leaves_its_text_and_the_usual_traceback(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    outcome = _run(tmp_path, "def fail(step):\n  if step == 4: raise ValueError('planted')\ntrain(9, fail)")
    assert outcome.exit_code == 1
    assert capfd.readouterr().err.startswith("Traceback (most recent call last)")
    (record,) = _records(tmp_path)
    assert "ValueError: planted" in record["raised"]
    assert record["job"]["steps_seen"] >= 3


def test_a_job_that_hangs_is_ended_with_the_stacks_of_its_ranks(tmp_path: Path) -> None:
    body = "from threading import Event\ndef hang_here(step):\n  if step == 4: Event().wait()\ntrain(9, hang_here)"
    outcome = _run(tmp_path, body, stall_timeout_s=4.0)
    assert outcome.stalled_s == 4.0
    (stack,) = outcome.stacks
    assert stack.error is None
    assert any("hang_here" in frame for frame in stack.threads[0])


def test_a_job_runs_on_where_the_agent_cannot_start(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    plan = Plan(command_line(sys.executable, [str(_job(tmp_path, "print(train(9))"))]), tmp_path / "run")
    done = subprocess.run(
        plan.command, env=environment(plan, os.environ), check=True, capture_output=True, text=True
    )  # no config.json yet
    assert float(done.stdout)
    assert done.stderr == ""
    (reason,) = agent_errors(tmp_path / "run").values()
    assert reason.startswith("the agent did not start: FileNotFoundError")


def test_what_the_model_was_is_still_known_when_the_job_has_let_go_of_it(tmp_path: Path) -> None:
    body = "def main():\n  global model, optimizer\n  train(60)\n  del model, optimizer\nmain()"
    _run(tmp_path, body, run_to_end=True)
    (record,) = _records(tmp_path)
    assert record["job"]["optimizers"][0]["name"] == "SGD"
    assert record["job"]["precision"]["parameters"] == "float32"


def test_a_process_without_torch_is_left_alone(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "plain.py").write_text("import sys; print(sorted(m for m in sys.modules if 'session' in m))")
    plan = Plan(command_line(sys.executable, [str(tmp_path / "plain.py")]), tmp_path / "run")
    assert launch(plan, os.environ).exit_code == 0
    assert capfd.readouterr().out == "[]\n"
    assert _records(tmp_path) == []


def test_the_sitecustomize_of_the_environment_still_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "theirs").mkdir()
    (tmp_path / "theirs" / "sitecustomize.py").write_text("print('theirs')")
    (tmp_path / "plain.py").write_text("import sys; print([p for p in sys.path if 'inject' in p])")
    plan = Plan(command_line(sys.executable, [str(tmp_path / "plain.py")]), tmp_path / "run")
    launch(plan, {**os.environ, "PYTHONPATH": str(tmp_path / "theirs")})
    assert capfd.readouterr().out == "theirs\n[]\n"


def test_two_ranks_trace_the_same_steps(tmp_path: Path) -> None:
    script = tmp_path / "ddp.py"
    script.write_text(
        "import torch, torch.distributed as dist\n"
        "dist.init_process_group('gloo')\n"
        "model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(64, 64))\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "while True:\n"
        "    model(torch.randn(8, 64)).sum().backward(); optimizer.step(); optimizer.zero_grad()\n"
    )
    run = tmp_path / "run"
    run.mkdir()
    command = command_line(sys.executable, [str(script)], processes=2)
    environ = {**os.environ, "OMP_NUM_THREADS": "1"}
    outcome = launch(Plan(command, run, wait=2, steps=3), environ)
    assert outcome.exit_code == 0
    records = sorted(_records(tmp_path), key=lambda record: record["rank"])
    assert [record["rank"] for record in records] == [0, 1]
    assert {record["phase"] for record in records} == {"done"}
    assert len({record["job"]["steps_seen"] for record in records}) == 1
    assert records[0]["job"]["parallel"]["kind"] == "ddp"


def test_weights_updated_by_hand_without_a_loader_make_steps(tmp_path: Path) -> None:
    body = (
        "while True:\n    loss = (model(data.tensors[0]) - data.tensors[1]).square().mean(); loss.backward()\n"
        "    for p in model.parameters(): p.data.add_(p.grad, alpha=-0.1); p.grad = None"
    )
    assert _run(tmp_path, body).exit_code == 0
    (record,) = _records(tmp_path)
    assert (record["phase"], record["job"]["loop"], record["job"]["agent_error"]) == ("done", "backward", None)


def test_an_evaluation_before_the_first_step_is_not_taken_for_steps(tmp_path: Path) -> None:
    _run(tmp_path, "for batch in DataLoader(data, batch_size=16): pass\ntrain(40)", run_to_end=True)
    (record,) = _records(tmp_path)
    # The loader was the only sign of life for 32 batches; the last step is not closed by another.
    assert (record["phase"], record["job"]["loop"], record["job"]["steps_seen"]) == ("done", "optimizer", 39)


def test_a_job_that_ends_inside_the_trace_leaves_what_was_traced(tmp_path: Path) -> None:
    assert _run(tmp_path, "train(30)", steps=100).exit_code == 0
    (record,) = _records(tmp_path)
    assert (record["phase"], record["job"]["steps_seen"]) == ("tracing", 29)
    assert (tmp_path / "run" / record["trace"]).stat().st_size > 0


def test_the_rank_outlives_its_process_group(tmp_path: Path) -> None:
    body = (
        "import torch.distributed as dist\n"
        "store = dist.HashStore(); dist.init_process_group('gloo', store=store, rank=0, world_size=1)\n"
        "train(60); dist.destroy_process_group()"
    )
    _run(tmp_path, body, run_to_end=True)
    (record,) = _records(tmp_path)
    assert record["job"]["steps_seen"] == 59
    assert record["job"]["parallel"] == {"backend": "gloo"}


def test_a_loader_made_anew_for_each_epoch_is_one_loader(tmp_path: Path) -> None:
    _run(tmp_path, "train(200)", run_to_end=True)
    (record,) = _records(tmp_path)
    (loader,) = record["job"]["loaders"]
    assert (loader["epochs"], loader["batches"]) == (4, 200)


def test_the_scheduler_tells_how_long_the_loop_waited_for_a_cpu(tmp_path: Path) -> None:
    _run(tmp_path, "train(10**9)")
    (record,) = _records(tmp_path)
    assert (record["job"]["cpu_wait_ms"] is None) == (not Path("/proc/thread-self/schedstat").exists())


def test_a_job_that_closes_all_descriptors_keeps_its_files(tmp_path: Path) -> None:
    own = tmp_path / "own"
    body = (
        "def close(step):\n  global own\n  if step == 3:\n"
        f"    os.closerange(3, 64); own = [open({str(own)!r}, 'a') for _ in range(40)]\n"
        "train(60, close)"
    )
    assert _run(tmp_path, body, run_to_end=True).exit_code == 0
    assert own.read_text() == ""
    (record,) = _records(tmp_path)
    assert (record["phase"], record["job"]["agent_error"]) == ("done", None)
    assert record["job"]["loaders"][0]["batch_ms"] > 0


def test_warnings_are_told_with_the_line_that_the_job_would_see(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = (
        "for batch in DataLoader(data, batch_size=64, pin_memory=True): pass\n"
        "model(data.tensors[0]).sum().backward(create_graph=True)"
    )
    assert _run(tmp_path, body, run_to_end=True).exit_code == 0
    watched = capfd.readouterr().err
    subprocess.run([sys.executable, str(tmp_path / "job.py")], check=True)
    assert watched == capfd.readouterr().err
    assert watched.count("UserWarning") >= 2


def test_sigterm_reaches_the_job(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    script = _job(tmp_path, "train(10**9, lambda step: print(step, flush=True))")
    doctor = (
        "import os, sys; from pathlib import Path; from gpudoctor.profiling.launch import *\n"
        f"plan = Plan((sys.executable, {str(script)!r}), Path({str(tmp_path / 'run')!r}), run_to_end=True)\n"
        "outcome = launch(plan, os.environ); print('outcome', outcome.exit_code, outcome.interrupted)"
    )
    process = subprocess.Popen([sys.executable, "-c", doctor], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    assert process.communicate()[0].splitlines()[-1] == "outcome 143 True"


@pytest.mark.parametrize(
    ("words", "processes", "said"),
    [
        (["missing.py"], None, "missing.py is neither a file nor a program"),
        (["no-such-launcher"], None, "no-such-launcher is neither a file nor a program"),
        (["-m"], None, "-m wants the name of a module"),
        (["sh", "-c", "true"], 2, "--nproc-per-node is for scripts"),
    ],
)
def test_what_cannot_be_started_is_said_before_anything_runs(
    words: list[str], processes: int | None, said: str
) -> None:
    with pytest.raises(LaunchError, match=said):
        command_line(sys.executable, words, processes=processes)


def test_commands_are_what_the_user_would_type() -> None:
    here = __file__
    assert command_line("py", [here, "--lr", "1"]) == ("py", here, "--lr", "1")
    assert command_line("py", ["-m", "pkg.train", "-x"]) == ("py", "-m", "pkg.train", "-x")
    torchrun = ("py", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")
    assert command_line("py", [here], processes=2) == (*torchrun, here)
    assert command_line("py", ["-m", "pkg"], processes=2) == (*torchrun, "-m", "pkg")
    assert command_line("py", ["sh", "-c", "true"]) == ("sh", "-c", "true")
