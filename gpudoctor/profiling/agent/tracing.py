"""One torch.profiler window: start it, step it, export it, and give way to a profiler of the job's own."""

from __future__ import annotations

import os
import sys
from typing import Any, Optional

from .sync_calls import quietly


class Tracing:
    """Only one profiler can run in a process: a second one ends some versions of torch with a segmentation fault."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.busy = False
        """The job runs a profiler itself."""
        self.trace: Optional[str] = None
        """File name of the trace, once it is there."""
        self._profiler: Any = None

    def start(self, warm_up: int, steps: int, cuda: bool) -> None:
        """Trace `steps` steps after so many of warm-up."""
        torch = sys.modules["torch"]
        if torch.autograd._profiler_enabled():
            self.busy = True
            return
        activities = [torch.profiler.ProfilerActivity.CPU]
        if cuda:
            activities.append(torch.profiler.ProfilerActivity.CUDA)
        self._profiler = quietly(
            torch.profiler.profile,
            activities=activities,
            schedule=torch.profiler.schedule(wait=0, warmup=warm_up, active=steps, repeat=1),
            on_trace_ready=self._export,
        )
        quietly(self._profiler.start)

    def step(self) -> None:
        """A step of the job has ended; at the last one the trace is written."""
        if self._profiler is not None:
            quietly(self._profiler.step)

    def end(self) -> None:
        """The trace is whole: let go of the profiler."""
        self._profiler = None

    def stop(self) -> None:
        """The job ends by itself in the middle of the window: what was traced is written."""
        if self._profiler is not None:
            quietly(self._profiler.stop)
            self._profiler = None

    def give_way(self, beginning: Any) -> None:
        """Another profiler begins (an autograd `profile`): where it is not ours, ours ends and its trace is lost."""
        if self._profiler is not None and beginning is not self._profiler.profiler:
            ours, self._profiler = self._profiler, None
            self.busy = True
            ours.on_trace_ready = None
            ours.stop()

    def _export(self, profiler: Any) -> None:
        name = f"trace-{os.getpid()}.json"
        profiler.export_chrome_trace(os.path.join(self.folder, name))
        self.trace = name
