"""Engines, by what they leave in files; and folders that die with a container."""

from pathlib import Path

import pytest

from gpudoctor.probes.container import read
from gpudoctor.probes.system import System

HOST_ROOT = "29 1 259:2 / / rw,relatime shared:1 - ext4 /dev/nvme0n1p2 rw\n"
DOCKER_ROOT = (
    "612 511 0:55 / / rw,relatime master:201 - overlay overlay "
    "rw,lowerdir=/var/lib/docker/overlay2/l/ABC,upperdir=/var/lib/docker/overlay2/f00/diff,workdir=/w\n"
)
CONTAINERD_ROOT = (
    "612 511 0:55 / / rw,relatime - overlay overlay "
    "rw,lowerdir=/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs/snapshots/1/fs,upperdir=/u,workdir=/w\n"
)
PODMAN_ROOT = (
    "1 0 0:55 / / rw - overlay overlay rw,lowerdir=/home/u/.local/share/containers/storage/overlay/l/A,upperdir=/u\n"
)
VOLUME = "640 612 259:2 /srv/data /data rw,relatime - ext4 /dev/nvme0n1p2 rw\n"
ID = "0123456789abcdef" * 4


def _machine(root: Path, environ: dict[str, str] | None = None, **files: str) -> System:
    for name, text in files.items():
        path = root / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return System(root=root, environ=environ or {})


def _with(system: System, path: str, text: str = "") -> System:
    place = system.path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(text)
    return system


def test_a_plain_host_is_none_even_while_it_runs_containers(tmp_path: Path) -> None:
    system = _machine(
        tmp_path,
        proc__1__cgroup="0::/init.scope\n",
        proc__self__cgroup="0::/user.slice/user-1000.slice/session-3.scope\n",
        proc__self__mountinfo=HOST_ROOT
        + DOCKER_ROOT.replace(" / / ", f" / /var/lib/docker/overlay2/{ID}/merged ")
        + "700 29 0:60 / /var/lib/kubelet/pods/abc/volumes/x rw - tmpfs tmpfs rw\n",
    )
    assert read(system).kind is None


def test_wsl_is_no_container_although_systemd_calls_it_one(tmp_path: Path) -> None:
    system = _machine(tmp_path, proc__1__environ="container=wsl\0PATH=/bin\0", proc__self__mountinfo=HOST_ROOT)
    assert read(_with(system, "/run/systemd/container", "wsl\n")).kind is None


def test_a_virtual_machine_made_of_a_docker_image_is_no_container(tmp_path: Path) -> None:
    system = _machine(
        tmp_path, proc__1__cgroup="0::/\n", proc__self__mountinfo="27 1 254:0 / / rw - ext4 /dev/vda rw\n"
    )
    assert read(_with(system, "/.dockerenv")).kind is None


def test_docker_with_control_groups_of_version_1(tmp_path: Path) -> None:
    system = _machine(tmp_path, proc__1__cgroup=f"12:devices:/docker/{ID}\n11:memory:/docker/{ID}\n")
    assert read(system).kind == "docker"


def test_docker_with_control_groups_of_version_2(tmp_path: Path) -> None:
    system = _machine(tmp_path, proc__1__cgroup="0::/\n", proc__self__mountinfo=DOCKER_ROOT)
    assert read(system).kind == "docker"


def test_docker_on_containerds_image_store_is_known_by_its_mark(tmp_path: Path) -> None:
    system = _machine(tmp_path, proc__1__cgroup="0::/\n", proc__self__mountinfo=CONTAINERD_ROOT)
    assert read(system).kind == "containerd"
    assert read(_with(system, "/.dockerenv")).kind == "docker"


def test_podman(tmp_path: Path) -> None:
    assert read(_machine(tmp_path, proc__self__mountinfo=PODMAN_ROOT)).kind == "podman"


def test_podman_by_its_mark_alone(tmp_path: Path) -> None:
    assert read(_with(_machine(tmp_path), "/run/.containerenv", 'engine="podman-4.9"')).kind == "podman"


@pytest.mark.parametrize(
    "files",
    [
        {"proc__self__cgroup": "0::/kubepods.slice/kubepods-burstable.slice/cri-containerd-0.scope\n"},
        {
            "proc__self__mountinfo": CONTAINERD_ROOT
            + "1 0 259:2 /var/lib/kubelet/pods/u/etc-hosts /etc/hosts rw - ext4 /dev/sda rw\n"
        },
        {"var__run__secrets__kubernetes.io": ""},
    ],
)
def test_kubernetes(tmp_path: Path, files: dict[str, str]) -> None:
    system = _machine(tmp_path, {"KUBERNETES_SERVICE_HOST": "10.96.0.1"}, **files)
    assert read(system).kind == "kubernetes"


def test_kubernetes_without_its_variables(tmp_path: Path) -> None:
    system = _machine(tmp_path, proc__1__cgroup="11:memory:/kubepods/burstable/pod1/abc\n")
    assert read(system).kind == "kubernetes"


def test_apptainer_shows_the_hosts_devices(tmp_path: Path) -> None:
    system = _machine(
        tmp_path,
        {"APPTAINER_CONTAINER": "/images/torch.sif", "PWD": "/home/user"},
        proc__self__mountinfo="1 0 0:9 / / ro,nosuid - overlay overlay ro,lowerdir=/x\n",
    )
    container = read(system)
    assert (container.kind, container.writable_layer) == ("apptainer", ())


def test_lxc_keeps_its_disk(tmp_path: Path) -> None:
    system = _machine(
        tmp_path,
        {"PWD": "/root"},
        proc__1__environ="container=lxc\0",
        proc__self__mountinfo=HOST_ROOT.replace("/dev/nvme0n1p2", "/dev/mapper/pve-vm--101"),
    )
    container = read(system)
    assert (container.kind, container.writable_layer) == ("lxc", ())


def test_what_the_container_was_given_is_read_from_its_variables(tmp_path: Path) -> None:
    environ = {
        "NVIDIA_VISIBLE_DEVICES": "all",
        "NVIDIA_DRIVER_CAPABILITIES": "compute,utility",
        "NVIDIA_REQUIRE_CUDA": "cuda>=12.8",
        "NVIDIA_DISABLE_REQUIRE": "1",
        "CUDA_VERSION": "12.8.1",
    }
    system = _machine(tmp_path, environ, proc__self__mountinfo=DOCKER_ROOT)
    (tmp_path / "sys/class/infiniband/mlx5_0").mkdir(parents=True)
    container = read(system)
    assert (container.visible_devices, container.driver_capabilities) == ("all", "compute,utility")
    assert (container.require_cuda, container.disable_require, container.image_nvidia) == ("cuda>=12.8", True, True)
    assert (container.infiniband_in_host, container.infiniband_nodes) == (True, False)


def test_folders_on_the_layer_are_told_from_those_on_volumes(tmp_path: Path) -> None:
    system = System(
        root=_machine(tmp_path, proc__self__mountinfo=DOCKER_ROOT + VOLUME).root,
        environ={"PWD": "/workspace"},
        checkpoint_dir=Path("/data/checkpoints"),
    )
    assert read(system).writable_layer == ("/workspace",)


def test_a_folder_whose_name_only_begins_like_a_volume_is_on_the_layer(tmp_path: Path) -> None:
    system = _machine(tmp_path, {"PWD": "/database"}, proc__self__mountinfo=DOCKER_ROOT + VOLUME)
    assert read(system).writable_layer == ("/database",)


def test_a_volume_with_a_blank_in_its_name_is_found(tmp_path: Path) -> None:
    volume = VOLUME.replace(" /data ", " /my\\040data ")
    system = _machine(tmp_path, {"PWD": "/my data/run"}, proc__self__mountinfo=DOCKER_ROOT + volume)
    assert read(system).writable_layer == ()


def test_a_working_folder_that_is_gone_is_a_part_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from gpudoctor.probes import container

    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    unread: dict[str, str] = {}
    assert container._writable_layer(System(), [], unread) == ()
    assert "working folder" in unread
