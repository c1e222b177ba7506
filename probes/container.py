"""Read whether this is a container, of which engine, and what it was given."""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpudoctor.facts.container import Container
from gpudoctor.probes.system import System

# In order: a pod is run by containerd or CRI-O too, and the pod is what its user knows.
ENGINES = (
    (re.compile(r"kubepods|/kubelet/pods/"), "kubernetes"),
    (re.compile(r"/libpod[-_/]|/libpod_parent|/containers/storage/"), "podman"),
    (re.compile(r"/docker[-/][0-9a-f]{12,}|/docker/(?:containers|overlay2|vfs|btrfs)/"), "docker"),
    (re.compile(r"cri-containerd|io\.containerd\.|/containerd/|/crio[-/]"), "containerd"),
    (re.compile(r"/lxc[/.]|lxcfs"), "lxc"),
)
"""What the engines leave in control group paths and in the sources of mounts."""

IMAGE_VARIABLES = ("NVIDIA_PRODUCT_NAME", "NVIDIA_BUILD_ID", "CUDA_VERSION")
LAYERED = ("overlay", "aufs", "fuse-overlayfs", "fuse.fuse-overlayfs")


class Mount(NamedTuple):
    """A line of /proc/self/mountinfo."""

    root: str
    point: str
    writable: bool
    file_system: str
    source: str
    options: str


def read(system: System) -> Container:
    """Files and the environment alone; nothing here needs root."""
    mounts = _mounts(system)
    kind = _kind(system, mounts)
    unread: dict[str, str] = {}
    environ = system.environ
    rdma = any(system.glob("/sys/class/infiniband/*")) if system.path("/sys/class").is_dir() else None
    return Container(
        kind=kind,
        visible_devices=environ.get("NVIDIA_VISIBLE_DEVICES"),
        driver_capabilities=environ.get("NVIDIA_DRIVER_CAPABILITIES"),
        require_cuda=environ.get("NVIDIA_REQUIRE_CUDA"),
        disable_require=environ.get("NVIDIA_DISABLE_REQUIRE", "").lower() in {"1", "true"},
        image_nvidia=any(name in environ for name in IMAGE_VARIABLES),
        writable_layer=_writable_layer(system, mounts, unread) if kind not in {None, "lxc"} else (),
        infiniband_in_host=rdma,
        infiniband_nodes=any(system.glob("/dev/infiniband/uverbs*")),
        unread=unread,
    )


def _kind(system: System, mounts: list[Mount]) -> str | None:
    """None on a plain host. WSL is a virtual machine of its own kind, not a container."""
    environ = system.environ
    if (
        "APPTAINER_CONTAINER" in environ
        or "SINGULARITY_CONTAINER" in environ
        or system.path("/.singularity.d").exists()
    ):
        return "apptainer"
    if "KUBERNETES_SERVICE_HOST" in environ and _is_pod(system):
        return "kubernetes"
    # Only mounts that an engine makes for the container itself: a host that runs containers lists theirs as well.
    own = [mount for mount in mounts if mount.point in {"/", "/etc/hosts", "/etc/hostname", "/etc/resolv.conf"}]
    own += [mount for mount in mounts if mount.point.startswith("/proc/") and mount.source == "lxcfs"]
    traces = [f"{mount.root} {mount.source} {mount.options}" for mount in own]
    # The first process of a host is in none; our own control group tells even with the host's processes in sight.
    traces += [system.text_or_none(f"/proc/{process}/cgroup") or "" for process in ("1", "self")]
    found = next((engine for trace, engine in ENGINES if any(trace.search(text) for text in traces)), None)
    if found is not None and found != "containerd":
        return found
    if system.path("/run/.containerenv").exists():
        return "podman"
    if system.path("/.dockerenv").exists() and not _whole_disk(mounts):
        return "docker"
    return found or _named(system)


def _whole_disk(mounts: list[Mount]) -> bool:
    """The root is all of a disk: a virtual machine that was made of a Docker image, `/.dockerenv` included."""
    root = [mount for mount in mounts if mount.point == "/"][-1:]
    return any(mount.root == "/" and re.match(r"/dev/(?!.*docker)", mount.source) for mount in root)


def _is_pod(system: System) -> bool:
    return (
        system.path("/var/run/secrets/kubernetes.io").exists()
        or system.path("/run/secrets/kubernetes.io").exists()
        or "kubelet" in (system.text_or_none("/proc/self/mountinfo") or "")
        or "kubepods" in (system.text_or_none("/proc/self/cgroup") or "")
        or system.path("/.dockerenv").exists()
    )


def _named(system: System) -> str | None:
    """What systemd's convention says: the variable `container` of the first process, which systemd leaves in a file."""
    first = dict(
        part.partition("=")[::2] for part in (system.text_or_none("/proc/1/environ") or "").split("\0") if "=" in part
    )
    for name in (
        system.text_or_none("/run/systemd/container"),
        first.get("container"),
        system.environ.get("container"),
    ):
        if name and name != "wsl":
            return name if name in {"docker", "podman", "lxc"} else "lxc" if name.startswith("lxc") else "unknown"
    return None


def _mounts(system: System) -> list[Mount]:
    """In the order of mounting. Source: proc_pid_mountinfo(5)."""
    mounts: list[Mount] = []
    for line in (system.text_or_none("/proc/self/mountinfo") or "").splitlines():
        before, _, after = line.partition(" - ")
        left, right = before.split(" "), after.split(" ")
        if len(left) > 5 and len(right) > 2:
            mounts.append(
                Mount(_plain(left[3]), _plain(left[4]), "rw" in left[5].split(","), right[0], right[1], right[2])
            )
    return mounts


def _plain(field: str) -> str:
    """Blanks and the like stand as octal numbers."""
    return re.sub(r"\\([0-7]{3})", lambda digits: chr(int(digits[1], 8)), field)


def _writable_layer(system: System, mounts: list[Mount], unread: dict[str, str]) -> tuple[str, ...]:
    """Those of the two folders that no volume holds."""
    folders: list[str] = []
    if system.live:
        try:
            folders.append(str(Path.cwd()))
        except OSError as error:
            unread["working folder"] = str(error.strerror).lower()
    elif "PWD" in system.environ:
        folders.append(system.environ["PWD"])
    if system.checkpoint_dir is not None:
        with suppress(OSError):
            folders.append(os.path.realpath(system.checkpoint_dir) if system.live else str(system.checkpoint_dir))
    return tuple(dict.fromkeys(folder for folder in folders if _on_layer(folder, mounts)))


def _on_layer(folder: str, mounts: list[Mount]) -> bool:
    """It lies on the root mount, and that is a layer on top of an image."""
    above = [mount for mount in mounts if f"{folder}/".startswith(f"{mount.point.rstrip('/')}/")]
    # Of mounts on one point the last hides the others.
    nearest = max(enumerate(above), key=lambda item: (len(item[1].point), item[0]), default=None)
    return (
        nearest is not None
        and nearest[1].point == "/"
        and nearest[1].writable
        and (nearest[1].file_system in LAYERED or bool(re.search(r"docker|containers/storage", nearest[1].source)))
    )
