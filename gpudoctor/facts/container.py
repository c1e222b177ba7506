"""Whether this is a container, which, and what it was given."""

from gpudoctor.facts.base import Subject


class Container(Subject, frozen=True, kw_only=True):
    """`kind` None: not in a container."""

    kind: str | None = None
    """`docker`, `podman`, `containerd`, `kubernetes`, `apptainer`, `lxc` or `unknown`."""
    visible_devices: str | None = None
    """NVIDIA_VISIBLE_DEVICES as set (`all`, `none`, `void`, a list); None where unset."""
    driver_capabilities: str | None = None
    """NVIDIA_DRIVER_CAPABILITIES as set."""
    require_cuda: str | None = None
    """NVIDIA_REQUIRE_CUDA as set."""
    disable_require: bool = False
    """NVIDIA_DISABLE_REQUIRE is set."""
    image_nvidia: bool | None = None
    """The image descends from an NVIDIA image (NVIDIA_PRODUCT_NAME, NVIDIA_BUILD_ID or CUDA_VERSION are set)."""
    writable_layer: tuple[str, ...] = ()
    """Of the working and checkpoint folders, those on the container's own writable layer."""
    infiniband_in_host: bool | None = None
    """/sys/class/infiniband lists devices."""
    infiniband_nodes: bool | None = None
    """/dev/infiniband exists in here."""
    runtime_error: str | None = None
    """Text of the engine where it refused to start a container (from pasted text)."""
