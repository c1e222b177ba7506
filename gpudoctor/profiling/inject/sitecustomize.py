"""Python runs this at the start of every process of the job, since this folder stands first on PYTHONPATH.

It starts the agent and then runs the sitecustomize that it shadows. The folder holds nothing else, so that no file of
ours can stand in for a module of the job's.
"""

import os
import sys


def _start_agent():  # type: () -> None
    from importlib.util import module_from_spec, spec_from_file_location

    folder = os.environ["GPUDOCTOR_AGENT"]
    # Under a name of its own: the job's environment need not have gpudoctor.
    spec = spec_from_file_location(
        "gpudoctor_agent", os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    assert spec is not None
    assert spec.loader is not None
    agent = sys.modules["gpudoctor_agent"] = module_from_spec(spec)
    spec.loader.exec_module(agent)
    agent.start(os.environ["GPUDOCTOR_RUN"])


def _run_shadowed():  # type: () -> None
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    here = os.path.dirname(os.path.abspath(__file__))
    sys.path[:] = [path for path in sys.path if os.path.abspath(path or ".") != here]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        shadowed = sys.modules["sitecustomize"] = module_from_spec(spec)
        spec.loader.exec_module(shadowed)


if "GPUDOCTOR_RUN" in os.environ:
    try:
        _start_agent()
    except Exception as error:  # the job must run whatever becomes of the agent
        try:
            with open(os.path.join(os.environ["GPUDOCTOR_RUN"], "agent-errors.log"), "a") as log:
                log.write("%d: %r\n" % (os.getpid(), error))
        except OSError:
            pass
_run_shadowed()
