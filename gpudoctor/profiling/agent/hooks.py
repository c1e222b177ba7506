"""Where the agent stands in torch. Each hook tells the session and then does what it did before."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Callable, List, Tuple

from .record import caller

if TYPE_CHECKING:
    from .session import Session

PASSED_OVER = "<gpudoctor, passed over like importlib._bootstrap>"
"""File name of the hooks' frames. Python's `warnings` does not count frames whose file is named after both words, so
that what torch warns about is still told with the job's own line."""

_patched: List[Tuple[Any, str, Any]] = []


def install(session: Session) -> None:
    """Put all hooks in place. torch has been imported."""
    import torch
    from torch.optim import optimizer
    from torch.utils.data import dataloader
    from torch.utils.data._utils import fetch

    optimizer.register_optimizer_step_post_hook(lambda stepped, args, kwargs: session.optimizer_stepped(stepped))
    _wrap(optimizer.Optimizer, "__init__", functools.partial(_made, session.optimizer_made))
    _wrap(torch.autograd, "backward", functools.partial(_backward, session))
    _wrap(dataloader._BaseDataLoaderIter, "__next__", functools.partial(_next, session))
    _wrap(dataloader._BaseDataLoaderIter, "__init__", functools.partial(_iterator_made, session))
    _wrap(dataloader.DataLoader, "__init__", functools.partial(_loader_made, session))
    _wrap(dataloader.DataLoader, "__iter__", functools.partial(_iteration_begins, session))
    for fetcher in (fetch._MapDatasetFetcher, fetch._IterableDatasetFetcher):
        _wrap(fetcher, "fetch", functools.partial(_fetch, session))
    _wrap(torch.nn.parallel.DistributedDataParallel, "__init__", functools.partial(_made, session.ddp_made))
    _wrap(torch.nn.parallel.DataParallel, "__init__", functools.partial(_made, session.data_parallel_made))
    _wrap(torch.amp.autocast_mode.autocast, "__enter__", functools.partial(_autocast, session))
    _wrap(torch.amp.grad_scaler.GradScaler, "update", functools.partial(_scaler_updates, session))
    _wrap(torch.autograd.profiler.profile, "_prepare_trace", functools.partial(_profiler_begins, session))
    _wrap(torch, "save", functools.partial(_saves, session))
    _wrap(torch.cuda, "empty_cache", functools.partial(_empties_cache, session))
    gc.callbacks.append(session.garbage_collector)
    threading.excepthook = _threads_hook(session, threading.excepthook)
    sys.excepthook = _exception_hook(session, sys.excepthook)
    os.register_at_fork(after_in_child=session.forked)
    atexit.register(session.ends_by_itself)


def remove() -> None:
    """Undo every patch: the agent has seen what it came for."""
    while _patched:
        owner, name, original = _patched.pop()
        setattr(owner, name, original)


def _wrap(owner: Any, name: str, hook: Callable[..., Any]) -> None:
    original = getattr(owner, name)

    @functools.wraps(original)
    def wrapped(*args: Any, **kwargs: Any) -> Any:
        return hook(original, *args, **kwargs)

    for function in (wrapped, getattr(hook, "func", hook)):
        function.__code__ = function.__code__.replace(co_filename=PASSED_OVER)
    setattr(owner, name, wrapped)
    _patched.append((owner, name, original))


def _unwrap(owner: Any, name: str) -> None:
    """Take one hook out that has nothing more to tell, unless another has been put on top of it."""
    for row in _patched:
        if row[:2] == (owner, name) and getattr(getattr(owner, name), "__wrapped__", None) is row[2]:
            setattr(*row)
            _patched.remove(row)
            return


def _backward(session: Session, original: Any, *args: Any, **kwargs: Any) -> Any:
    session.backward_begins()
    if not session.wants_backwards:
        _unwrap(sys.modules["torch"].autograd, "backward")
    return original(*args, **kwargs)


def _next(session: Session, original: Any, iterator: Any) -> Any:
    session.fetch_begins(iterator)
    start = time.perf_counter()
    batch = original(iterator)
    session.fetched(iterator, batch, time.perf_counter() - start)
    return batch


def _iterator_made(session: Session, original: Any, iterator: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
    original(iterator, loader, *args, **kwargs)
    session.iterator_made(iterator, loader)


def _loader_made(session: Session, original: Any, loader: Any, *args: Any, **kwargs: Any) -> Any:
    original(loader, *args, **kwargs)
    session.loader_made(loader, caller())


def _iteration_begins(session: Session, original: Any, loader: Any) -> Any:
    session.iteration_begins(loader)
    start = time.perf_counter()
    iterator = original(loader)
    session.iteration_began(loader, time.perf_counter() - start)
    return iterator


def _fetch(session: Session, original: Any, fetcher: Any, index: Any) -> Any:
    if not session.measures_batches:
        return original(fetcher, index)
    wall, cpu, read = time.perf_counter(), time.thread_time(), session.bytes_read()
    batch = original(fetcher, index)
    session.batch_made(
        fetcher.dataset, time.perf_counter() - wall, time.thread_time() - cpu, session.bytes_read() - read
    )
    return batch


def _made(tell: Callable[[Any], None], original: Any, made: Any, *args: Any, **kwargs: Any) -> Any:
    original(made, *args, **kwargs)
    tell(made)


def _autocast(session: Session, original: Any, region: Any) -> Any:
    session.autocast_entered(region)
    return original(region)


def _scaler_updates(session: Session, original: Any, scaler: Any, *args: Any, **kwargs: Any) -> Any:
    result = original(scaler, *args, **kwargs)
    session.scaler_updated()
    return result


def _profiler_begins(session: Session, original: Any, profiler: Any) -> Any:
    session.profiler_begins(profiler)
    return original(profiler)


def _saves(session: Session, original: Any, *args: Any, **kwargs: Any) -> Any:
    start = time.perf_counter()
    try:
        return original(*args, **kwargs)
    finally:
        session.saved(time.perf_counter() - start, caller())


def _empties_cache(session: Session, original: Any, *args: Any, **kwargs: Any) -> Any:
    session.cache_emptied(caller())
    return original(*args, **kwargs)


def _exception_hook(session: Session, original: Any) -> Callable[..., None]:
    def hook(kind: Any, error: Any, trace: Any) -> None:
        session.raised(kind, error, trace)
        original(kind, error, trace)

    return hook


def _threads_hook(session: Session, original: Any) -> Callable[..., None]:
    def hook(arguments: Any) -> None:
        session.raised(arguments.exc_type, arguments.exc_value, arguments.exc_traceback)
        original(arguments)

    return hook
