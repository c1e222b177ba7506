"""The agent's life in one process: count steps, go through the phases, write what was seen, get out of the way.

Files it writes to the run folder, all named by process id: `process-PID.json` (what it recorded; written anew at the
end of each phase, so that a killed job still leaves one), `progress-PID` (a line that a watcher can read at any time),
`trace-PID.json` (the torch.profiler trace), `workers-PID.jsonl` (a loader worker's batches).
"""

from __future__ import annotations

import functools
import json
import os
import socket
import sys
import threading
import time
import traceback
from typing import Any, Callable, Dict, List, Optional, Tuple, TypeVar, cast
from weakref import WeakValueDictionary, ref

from . import hooks, setup
from .phases import DONE, SYNC_CALLS, TIMING, TRACING, WARM_UP, Phases
from .record import MOST_TIMES, Loader, Pause, cpu_wait_s, look_at_batch
from .steps import Steps
from .sync_calls import SyncCalls
from .tracing import Tracing

PROGRESS_EVERY_S = 0.2
MOST_BATCHES = 200
"""Whose cost is measured: of a loader, or of a worker. To read /proc for each would be the agent's dearest habit."""
LEAVE_WITHIN_S = 20.0
"""After the agent has ended the job: what still runs then (an exit handler that waits for other ranks) is cut off."""

Method = TypeVar("Method", bound=Callable[..., Any])


def attach(run_folder: str) -> None:
    """Begin in this process. torch has just been imported."""
    hooks.install(Session(run_folder))


def _guarded(method: Method) -> Method:
    """Whatever goes wrong inside switches the agent off and is recorded; the job goes on."""

    @functools.wraps(method)
    def call(self: Session, *args: Any, **kwargs: Any) -> Any:
        if self.off:
            return None
        try:
            return method(self, *args, **kwargs)
        except Exception as error:
            self.switch_off(error)
            return None

    return cast("Method", call)


class Session:
    """One process. Its methods are called by the hooks."""

    def __init__(self, run_folder: str) -> None:
        self.folder = run_folder
        with open(os.path.join(run_folder, "config.json")) as file:
            self.config = json.load(file)
        self._begin()

    def _begin(self) -> None:
        self.off = False
        self.error: Optional[str] = None
        self.steps = Steps()
        self.wants_backwards = True
        self.measures_batches = True
        self.in_worker: Optional[bool] = None
        self.phases = Phases(self.config["wait"], self.config["steps"])
        self.thread: Optional[int] = None
        # Weakly: a job that lets go of a model must get its memory back.
        self.optimizers: WeakValueDictionary[int, Any] = WeakValueDictionary()
        self.last_stepped: Callable[[], Any] = _nothing
        self.kind = "optimizer"
        self.loaders: Dict[int, Loader] = {}
        self.iterators: Dict[int, Loader] = {}
        self.ddp: Callable[[], Any] = _nothing
        self.data_parallel = False
        self.autocast: Optional[str] = None
        self.scaler = False
        self.stepped_since_update = False
        self.pauses: Dict[str, Pause] = {}
        self.empty_cache_calls = 0
        self.sync_calls = SyncCalls()
        self.times_ms: List[float] = []
        self.last_step_s: Optional[float] = None
        self.timing_began_s = 0.0
        self.timed_ms: Optional[float] = None
        self.gradients_bytes: Optional[int] = None
        self.graphs: Optional[int] = None
        self.recompiles: Optional[int] = None
        self.tracing = Tracing(self.folder)
        self.raised_text: Optional[str] = None
        self.gc_began_s = 0.0
        self.group: Optional[Tuple[int, int]] = None
        self.parallel: Optional[Dict[str, Any]] = None
        self.model: Optional[Dict[str, Any]] = None
        self.cpu_wait_began_s: Optional[float] = None
        self.cpu_wait_ms: Optional[float] = None
        self.steps_watched = 0
        self.io: Optional[int] = None
        """Descriptor of /proc/self/io: which process it tells of is settled when it is opened."""
        self.progress_s = 0.0
        self.worker_lines = 0
        self.ends = 0

    def forked(self) -> None:
        """In a forked child: a loader worker, or a process that may become a rank of its own."""
        off = self.off
        self._begin()
        self.off = off

    # Who this process is

    def identity(self) -> Dict[str, Any]:
        """The process group's ranks where there is one: some launchers set no variables for the first process."""
        if self._grouped():
            distributed = sys.modules["torch"].distributed
            self.group = (distributed.get_rank(), distributed.get_world_size())
        if self.group is not None:
            # It stays this rank when the job has destroyed the group at its end.
            rank, world_size = self.group
        else:
            rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
        local_rank = os.environ.get("LOCAL_RANK")
        return {
            "rank": rank,
            "world_size": world_size,
            "local_rank": int(local_rank) if local_rank is not None else None,
            "pid": os.getpid(),
            "host": socket.gethostname(),
        }

    @staticmethod
    def _grouped() -> bool:
        """False again where the job has destroyed its process group, as many do at their end."""
        distributed = sys.modules["torch"].distributed
        return bool(distributed.is_available() and distributed.is_initialized())

    @staticmethod
    def _cuda() -> bool:
        cuda = sys.modules["torch"].cuda
        return bool(cuda.is_available() and cuda.is_initialized())

    # What the hooks tell

    @_guarded
    def optimizer_stepped(self, optimizer: Any) -> None:
        """A post-step hook: the boundary is armed here, and closed at the next fetch."""
        if self.last_stepped() is not optimizer:
            self._another_steps(optimizer)
        self.stepped_since_update = True
        if self.gradients_bytes is None and self.phases.phase == TIMING:
            params = setup.parameters(self.optimizers.values())
            self.gradients_bytes = sum(setup._bytes(p.grad) for p in params if p.grad is not None)
        if self.steps.optimizer_step(id(optimizer), self.kind):
            self._step_ended()

    def _another_steps(self, optimizer: Any) -> None:
        """Not the optimizer that stepped last. What need not be done at every step is done here."""
        if self.thread is None:
            self.thread = threading.get_ident()
        if self.steps.guessed and self.phases.phase in (WARM_UP, TIMING):
            self._count_anew()
        self.optimizers.setdefault(id(optimizer), optimizer)
        self.last_stepped = ref(optimizer)
        engine = "deepspeed" in sys.modules and not isinstance(optimizer, _torch_optimizer())
        self.kind = "deepspeed" if engine else "optimizer"

    @_guarded
    def optimizer_made(self, optimizer: Any) -> None:
        """An optimizer was constructed."""
        self.steps.optimizer_made()

    @_guarded
    def backward_begins(self) -> None:
        """`loss.backward()` is about to run."""
        if self.steps.backward():
            self._step_ended()
        self.wants_backwards = not self.steps.fetches and (self.steps.guessed or self.steps.loop is None)

    @_guarded
    def scaler_updated(self) -> None:
        """A GradScaler that met infinities passes over `optimizer.step()`: the step took place all the same."""
        self.scaler = True
        skipped = not self.stepped_since_update and bool(self.optimizers)
        self.stepped_since_update = False
        if skipped and self.steps.optimizer_step(next(iter(self.optimizers))):
            self._step_ended()

    @_guarded
    def fetch_begins(self, iterator: Any) -> None:
        """`next(loader)` is about to run."""
        if self.in_worker is None:
            self.in_worker = _in_worker()
        if not self.in_worker and self.thread in (None, threading.get_ident()) and self.steps.fetch():
            self._step_ended()

    @_guarded
    def fetched(self, iterator: Any, batch: Any, wait_s: float) -> None:
        """`next(loader)` took this long."""
        loader = self.iterators.get(id(iterator))
        if loader is None:
            return
        loader.batches += 1
        if loader.started_s is not None:
            loader.starts_s.append(time.perf_counter() - loader.started_s)
            loader.started_s = None
        elif len(loader.waits_s) < MOST_TIMES and self.phases.phase != TRACING:
            loader.waits_s.append(wait_s)
        if loader.batches <= 2:
            look_at_batch(loader, batch)

    @_guarded
    def loader_made(self, loader: Any, where: Optional[str]) -> None:
        """A DataLoader was constructed."""
        made = Loader(loader, where)
        self.loaders[id(loader)] = next((known for known in self.loaders.values() if known.is_like(made)), made)

    @_guarded
    def iteration_begins(self, loader: Any) -> None:
        """`iter(loader)`."""
        known = self.loaders.get(id(loader))
        if known is not None:
            known.epochs += 1
            known.started_s = time.perf_counter()

    @_guarded
    def iteration_began(self, loader: Any, duration_s: float) -> None:
        """`iter(loader)` has returned: its workers have been started."""
        if loader.num_workers and self.phases.phase != WARM_UP and not _in_worker():
            self.pauses.setdefault("workers", Pause()).add(duration_s)

    @_guarded
    def iterator_made(self, iterator: Any, loader: Any) -> None:
        """The loader's own iterator."""
        known = self.loaders.get(id(loader)) or self.loaders.setdefault(id(loader), Loader(loader, None))
        self.iterators[id(iterator)] = known
        self.measures_batches = True

    def bytes_read(self) -> int:
        """By this process so far, page cache included; 0 where the system does not tell."""
        try:
            if self.io is None:
                self.io = os.open("/proc/self/io", os.O_RDONLY)
            return int(os.pread(self.io, 64, 0).split()[1])
        except (OSError, ValueError, IndexError):
            return 0

    @_guarded
    def batch_made(self, dataset: Any, wall_s: float, cpu_s: float, read: int) -> None:
        """A batch was put together, in a loader worker or (without workers) here."""
        if _in_worker():
            self.worker_lines += 1
            line = json.dumps([os.getppid(), type(dataset).__name__, wall_s, cpu_s, read]) + "\n"
            with open(os.path.join(self.folder, f"workers-{os.getpid()}.jsonl"), "a") as file:
                file.write(line)
            self.measures_batches = self.worker_lines < MOST_BATCHES
            return
        wanting = [loader for loader in self.loaders.values() if len(loader.costs) < MOST_BATCHES]
        for loader in wanting:
            if loader.setup["dataset"] == type(dataset).__name__:
                loader.costs.append((wall_s, cpu_s, read))
                return
        self.measures_batches = False  # until a loader begins anew, which may be another

    @_guarded
    def ddp_made(self, model: Any) -> None:
        """DistributedDataParallel(model)."""
        self.ddp = ref(model)

    @_guarded
    def data_parallel_made(self, model: Any) -> None:
        """nn.DataParallel(model)."""
        self.data_parallel = True

    @_guarded
    def autocast_entered(self, region: Any) -> None:
        """`with torch.autocast(...)`."""
        if getattr(region, "_enabled", False):
            self.autocast = str(getattr(region, "fast_dtype", "")).replace("torch.", "") or None

    @_guarded
    def profiler_begins(self, profiler: Any) -> None:
        """The job starts a profiler of its own."""
        self.tracing.give_way(profiler)

    def garbage_collector(self, phase: str, info: Dict[str, int]) -> None:
        """A callback of the gc module."""
        if phase == "start":
            self.gc_began_s = time.perf_counter()
        elif self.phases.phase not in (WARM_UP, TRACING):  # the profiler's own objects are much to walk
            self.pauses.setdefault("gc", Pause()).add(time.perf_counter() - self.gc_began_s)

    @_guarded
    def saved(self, duration_s: float, where: Optional[str]) -> None:
        """torch.save took this long."""
        if self.phases.phase != WARM_UP:
            self.pauses.setdefault("save", Pause()).add(duration_s, where)

    @_guarded
    def cache_emptied(self, where: Optional[str]) -> None:
        """torch.cuda.empty_cache()."""
        if self.phases.phase != WARM_UP:
            self.empty_cache_calls += 1

    def raised(self, kind: Any, error: Any, trace: Any) -> None:
        """The process is dying of an exception nobody caught."""
        if isinstance(error, (SystemExit, KeyboardInterrupt)):
            return
        try:
            self.raised_text = "".join(traceback.format_exception(kind, error, trace))[-20000:]
            self.write()
        except Exception as failed:
            self.switch_off(failed)

    @_guarded
    def ends_by_itself(self) -> None:
        """The process ends, perhaps before all was seen: a trace that is still open keeps the steps it has."""
        self.tracing.stop()
        if self.steps.count:
            self.write()

    # Steps and phases

    def _count_anew(self) -> None:
        """What was counted before the first optimizer stepped was an evaluation, or gradients being gathered."""
        self.steps = Steps()
        self.phases = Phases(self.config["wait"], self.config["steps"])
        self.times_ms = []
        self.last_step_s = None
        self.steps_watched = 0

    def _step_ended(self) -> None:
        now = time.perf_counter()
        count = self.steps.count
        timed = self.phases.phase in (TIMING, DONE) and len(self.times_ms) < MOST_TIMES
        if timed and self.last_step_s is not None:
            self.times_ms.append((now - self.last_step_s) * 1e3)
        before = self.phases.phase
        if before == TRACING:
            self._watch_cpu(count)
            self.tracing.step()
        if before not in (WARM_UP, TRACING):
            self.steps_watched += 1
        if before == WARM_UP and count == 1:
            self.phases.margin = self._margin()
        # Who leads matters in the timing window only, and to ask at every step would be felt in short ones.
        agreed, leads = (self._agreed(), self._leads()) if before == TIMING else (None, True)
        phase = self.phases.step(count, now, agreed, leads)
        if phase == TIMING and before == TIMING and self.phases.trace_from is not None:
            self._publish()
        if phase != before:
            self._leave(before)
            self._enter(phase)
        if phase != before or now - self.progress_s >= PROGRESS_EVERY_S:
            self._tell_progress(now)
        self.last_step_s = time.perf_counter()
        if phase == DONE and not self.config["run_to_end"]:
            self._end_job()

    def _alone(self) -> bool:
        """Each rank counts alone where there is one, or where several hosts share no folder."""
        told = self.identity()
        local = os.environ.get("LOCAL_WORLD_SIZE")
        return told["world_size"] == 1 or (local is not None and int(local) != told["world_size"])

    def _leads(self) -> bool:
        return self._alone() or bool(self.identity()["rank"] == 0)

    def _margin(self) -> int:
        return 1 if self._alone() else 8 if self._cuda() else 2

    def _agreed(self) -> Optional[int]:
        if self._leads():
            return None
        try:
            with open(os.path.join(self.folder, "trace-from")) as file:
                return int(file.read() or 0) or None
        except (OSError, ValueError):
            return None

    def _publish(self) -> None:
        path = os.path.join(self.folder, "trace-from")
        if self.identity()["rank"] == 0 and not self._alone() and not os.path.exists(path):
            with open(path + ".new", "w") as file:
                file.write(str(self.phases.trace_from))
            os.replace(path + ".new", path)

    def _enter(self, phase: str) -> None:
        if phase == TIMING:
            self._drain()
            self.graphs = setup.graphs_compiled()
            self.timing_began_s = time.perf_counter()
        elif phase == SYNC_CALLS and self._can_look_for_syncs():
            self.sync_calls.begin()
        elif phase == TRACING:
            steps = self.config["steps"]
            self.tracing.start(self.phases.trace_until - self.steps.count - steps, steps, self._cuda())
        elif phase == DONE:
            hooks_left = self.config["run_to_end"]
            if not hooks_left:
                hooks.remove()
        self.write()

    def _leave(self, phase: str) -> None:
        if phase == TIMING:
            self._drain()
            timed = self.phases.timed_until - self.phases.timed_from
            self.timed_ms = (time.perf_counter() - self.timing_began_s) * 1e3 / timed
            graphs = setup.graphs_compiled()
            self.recompiles = graphs - (self.graphs or 0) if graphs is not None else None
        elif phase == SYNC_CALLS:
            self.sync_calls.end()
        elif phase == TRACING:
            self.tracing.end()

    def _watch_cpu(self, count: int) -> None:
        """How much of the traced steps other processes took from the thread that trains."""
        left = self.phases.trace_until - count
        if left == self.config["steps"]:
            self.cpu_wait_began_s = cpu_wait_s()
        elif left == 0 and self.cpu_wait_began_s is not None:
            waited_s = (cpu_wait_s() or 0.0) - self.cpu_wait_began_s
            self.cpu_wait_ms = max(0.0, waited_s) * 1e3 / self.config["steps"]

    def _drain(self) -> None:
        """Wait for the device, so that the timing window holds whole steps of it: hosts run ahead."""
        if self._cuda():
            sys.modules["torch"].cuda.synchronize()

    def _can_look_for_syncs(self) -> bool:
        """Not with gloo, whose own threads copy from the GPU: torch then warns past Python, on the job's stderr."""
        gloo = self._grouped() and "gloo" in str(sys.modules["torch"].distributed.get_backend())
        return self._cuda() and not gloo

    def _end_job(self) -> None:
        """All has been seen: unwind the job as `sys.exit(0)` would, and cut off what then still hangs."""
        self.ends += 1
        sys.stdout.flush()
        sys.stderr.flush()
        cutter = threading.Timer(LEAVE_WITHIN_S, os._exit, (0,))
        cutter.daemon = True
        cutter.start()
        if self.ends > 3 or threading.current_thread() is not threading.main_thread():
            os._exit(0)
        raise SystemExit(0)

    # Files

    def _tell_progress(self, now: float) -> None:
        self.progress_s = now
        text = f"{self.identity()['rank']} {self.steps.count} {self.phases.phase}"
        # Opened anew: a job that closes all descriptors, as daemons do, may have made a file of its own of an old one.
        progress = os.open(os.path.join(self.folder, f"progress-{os.getpid()}"), os.O_CREAT | os.O_WRONLY, 0o644)
        try:
            os.pwrite(progress, text.ljust(48).encode(), 0)
        finally:
            os.close(progress)

    def switch_off(self, error: Exception) -> None:
        """A fault of the agent's own."""
        self.off = True
        self.error = "".join(traceback.format_exception(type(error), error, error.__traceback__))[-4000:]
        try:
            hooks.remove()
            self.write()
        except Exception:
            return

    def write(self) -> None:
        """What was seen so far, whole or not at all."""
        path = os.path.join(self.folder, f"process-{os.getpid()}.json")
        record = {
            **self.identity(),
            "argv": sys.argv,
            "phase": self.phases.phase,
            "trace": self.tracing.trace,
            "raised": self.raised_text,
            "job": self._job(),
        }
        with open(path + ".new", "w") as file:
            json.dump(record, file)
        os.replace(path + ".new", path)

    def _job(self) -> Dict[str, Any]:
        count = self.steps.count
        fetches = self.steps.accumulation
        loaders = list({id(loader): loader for loader in self.loaders.values() if loader.batches}.values())
        samples = [loader.samples for loader in loaders if loader.samples and loader.batches > 2]
        tokens = [loader.tokens for loader in loaders if loader.tokens and loader.batches > 2]
        timed = self.phases.timed_until - self.phases.timed_from
        return {
            "agent_error": self.error,
            "torch": sys.modules["torch"].__version__,
            "script": sys.argv[0] if sys.argv else None,
            "loop": self.steps.loop,
            "steps_seen": count,
            "timed_steps": max(timed, 0),
            "timed_step_ms": self.timed_ms,
            "step_times_ms": self.times_ms,
            "accumulation": fetches,
            "samples_per_step": samples[0] * fetches if samples and fetches else None,
            "tokens_per_step": tokens[0] * fetches if tokens and fetches else None,
            "profiler_busy": self.tracing.busy,
            "compiled": setup.graphs_compiled() is not None,
            "recompiles": self.recompiles,
            "loaders": [loader.as_json() for loader in loaders],
            **self._model(),
            "cpu_wait_ms": self.cpu_wait_ms,
            "pauses": [pause.as_json(kind, self._steps_watched(kind)) for kind, pause in self.pauses.items()],
            "syncs": self.sync_calls.as_json(),
            "empty_cache_calls": self.empty_cache_calls,
        }

    def _model(self) -> Dict[str, Any]:
        """As it was while it lived: a job that has left its training function has let go of model and group."""
        optimizers = list(self.optimizers.values())
        if self.model is not None and not optimizers:
            return self.model
        params = setup.parameters(optimizers)
        traced = self.phases.phase in (TRACING, DONE)
        if (traced or self.raised_text) and (self._grouped() or self.parallel is None):
            self.parallel = setup.parallel(self.ddp(), self.data_parallel, params)
        self.model = {
            "optimizers": setup.optimizers(optimizers, self.steps.optimizer_steps, self.steps.count),
            "parallel": self.parallel,
            "precision": setup.precision(params, self.autocast, self.scaler),
            "memory": setup.memory(params, self.gradients_bytes, optimizers),
        }
        return self.model

    def _steps_watched(self, kind: str) -> int:
        """Steps in which pauses of the kind were recorded: all after the warm-up."""
        if kind == "gc":
            return max(1, self.steps_watched)
        return max(1, self.steps.count - self.phases.timed_from) if self.phases.phase != WARM_UP else 1


def _nothing() -> None:
    return None


def _in_worker() -> bool:
    return sys.modules["torch"].utils.data.get_worker_info() is not None


def _torch_optimizer() -> Any:
    return sys.modules["torch"].optim.Optimizer
