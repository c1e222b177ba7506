"""Error texts, in the wordings of several versions; each gives the facts it proves and no others."""

import pytest

from gpudoctor.facts.container import Container
from gpudoctor.facts.driver import Driver
from gpudoctor.facts.errors import ErrorText
from gpudoctor.facts.shm import Shm
from gpudoctor.facts.torch import LoadedVersion
from gpudoctor.readers import error_text
from gpudoctor.snapshot import Snapshot

GIB = 2**30
OOM_NEW = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU 1 has a total capacity of "
    "79.15 GiB of which 512.00 MiB is free. Including non-PyTorch memory, this process has 78.64 GiB memory in use. Of "
    "the allocated memory 70.00 GiB is allocated by PyTorch, and 6.25 GiB is reserved by PyTorch but unallocated. If "
    "reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"
)
OOM_OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.00 GiB total capacity; 9.00 GiB already "
    "allocated; 13.00 MiB free; 9.50 GiB reserved in total by PyTorch)"
)


def _read(text: str) -> Snapshot:
    snapshot = error_text.read(text)
    assert snapshot is not None
    return snapshot


def _only(text: str) -> ErrorText:
    errors = _read(text).errors
    assert errors is not None
    (message,) = errors.recognised
    return message


def test_the_figures_of_an_out_of_memory_error_are_read() -> None:
    message = _only(OOM_NEW)
    assert (message.kind, message.rank) == ("out_of_memory", 1)
    assert message.numbers == {
        "tried_bytes": 3 * GIB // 2,
        "gpu": 1,
        "total_bytes": int(79.15 * GIB),
        "free_bytes": GIB // 2,
        "own_bytes": int(78.64 * GIB),
        "allocated_bytes": 70 * GIB,
        "reserved_unallocated_bytes": int(6.25 * GIB),
    }


def test_the_older_layout_of_it_too() -> None:
    numbers = _only(OOM_OLD).numbers
    assert numbers == {
        "tried_bytes": 20 * 2**20,
        "gpu": 0,
        "total_bytes": 11 * GIB,
        "free_bytes": 13 * 2**20,
        "allocated_bytes": 9 * GIB,
        "reserved_bytes": int(9.5 * GIB),
    }


def test_quoted_mail_colours_and_wrapped_lines_do_not_hide_a_message() -> None:
    wrapped = OOM_OLD.replace(" (GPU", "\n> (GPU").replace("; 13.00", ";\n> 13.00")
    assert _only(f"> \x1b[31m{wrapped}\x1b[0m").numbers == _only(OOM_OLD).numbers


def test_the_same_message_of_many_ranks_is_told_once_a_rank_and_counted() -> None:
    other = OOM_NEW.replace("rank1", "rank0").replace("GPU 1", "GPU 0")
    errors = _read("\n".join([OOM_NEW, other, OOM_NEW])).errors
    assert errors is not None
    assert [(text.rank, text.count) for text in errors.recognised] == [(1, 2), (0, 1)]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("RuntimeError: CUDA error: out of memory", "out_of_memory"),
        ("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has", "out_of_memory"),
        ("RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`", "out_of_memory"),
        ("node1:7:9 [0] transport/p2p.cc:9 NCCL WARN Cuda failure 2 'out of memory'", "out_of_memory"),
        (
            (
                "RuntimeError: [enforce fail at alloc_cpu.cpp:83] DefaultCPUAllocator: can't allocate memory: "
                "you tried to allocate 8000000000 bytes. Error code 12 (Cannot allocate memory)"
            ),
            "host_out_of_memory",
        ),
        (
            "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 12.5 GiB for an array",
            "host_out_of_memory",
        ),
        ("OSError: [Errno 12] Cannot allocate memory", "host_out_of_memory"),
        (
            "RuntimeError: Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must",
            "cuda_in_forked_worker",
        ),
        (
            (
                "RuntimeError: Caught RuntimeError in DataLoader worker process 0.\nOriginal Traceback (most recent "
                "call last):\n  ...\nRuntimeError: CUDA error: initialization error"
            ),
            "cuda_in_forked_worker",
        ),
        ("RuntimeError: DataLoader worker (pid 12) is killed by signal: Killed. ", "loader_worker_killed"),
        ("RuntimeError: DataLoader worker (pid(s) 7, 8) exited unexpectedly", "loader_worker_killed"),
        ("RuntimeError: CUDA error: an illegal memory access was encountered", "illegal_access"),
        ("RuntimeError: CUDA error: device-side assert triggered", "device_assert"),
        ("torch.AcceleratorError: CUDA error: misaligned address", "illegal_access"),
        ("OSError: [Errno 24] Too many open files: '/data/x.jpg'", "too_many_open_files"),
        ("RuntimeError: received 0 items of ancdata", "too_many_open_files"),
        (
            "RuntimeError: Gloo connectFullMesh failed with [../gloo/transport/tcp/pair.cc:144] no error",
            "gloo_cannot_connect",
        ),
        (
            (
                "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:799] connect [127.0.1.1]:41000: "
                "Connection refused"
            ),
            "gloo_cannot_connect",
        ),
        ("Epoch 3 | step 120 | train_loss: nan | lr 1e-3", "nan_loss"),
        ("{'loss': nan, 'grad_norm': 1.0}", "nan_loss"),
        ("Loss is nan, stopping training", "nan_loss"),
        ("RuntimeError: CUDA error: uncorrectable ECC error encountered", "uncorrectable_ecc"),
    ],
)
def test_messages_are_recognised(text: str, kind: str) -> None:
    assert _only(text).kind == kind


@pytest.mark.parametrize(
    "text",
    [
        "",
        "the memory of this tenant is in order, nothing lost in translation: nanogpt trains",
        "For debugging consider passing CUDA_LAUNCH_BLOCKING=1.\nCompile with `TORCH_USE_CUDA_DSA`",
        "INFO I would rather not run out of memory today, so the batch is small",
        "RuntimeError: Expected to mark a variable ready only once.",
        "loss: 0.3 | nanoseconds: 12",
        "RuntimeError: CUDA error: invalid device ordinal",
    ],
)
def test_other_texts_are_not(text: str) -> None:
    assert error_text.read(text) is None


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("Unexpected error from cudaGetDeviceCount(). Did you ... an error? Error 803: system has unsupported", 803),
        ("cuda runtime error (30) : unknown error at /x/THCGeneral.cpp:50", 999),
        ("UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up", 999),
        ("Call to cuInit results in CUDA_ERROR_NO_DEVICE (100)", 100),
        ("RuntimeError: No CUDA GPUs are available", 100),
        ("Test CUDA failure common.cu:941 'system not yet initialized'", 802),
        ("CUDA driver version is insufficient for CUDA runtime version", 35),
    ],
)
def test_an_error_of_cudas_start_goes_to_the_driver(text: str, code: int) -> None:
    driver = _read(text).driver
    assert driver is not None
    assert driver.cuda_error == code


def test_an_error_in_the_middle_of_a_job_is_none_of_cudas_start() -> None:
    assert error_text.read("RuntimeError: CUDA error: unknown error") is None
    assert error_text.read("Training stopped with an unknown error") is None


def test_torchs_own_words_say_that_cuda_is_not_available_and_another_programs_do_not() -> None:
    own = _read("RuntimeError: Unexpected error from cudaGetDeviceCount(). ... Error 802: system not yet initialized")
    other = _read("node1: Test CUDA failure common.cu:941 'system not yet initialized'")
    assert own.torch_runtime is not None
    assert (own.torch_runtime.cuda_available, own.torch_runtime.cuda_error_code) == (False, 802)
    assert other.torch_runtime is None


def test_a_driver_that_is_too_old_tells_its_cuda() -> None:
    driver = _read("The NVIDIA driver on your system is too old (found version 11040). Please update").driver
    assert driver is not None
    assert (driver.cuda_version, driver.cuda_error) == ("11.4", 35)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\n", "Driver/library version mismatch"),
        ("Failed to initialize NVML: Unknown Error", "Unknown Error"),
        ("pynvml.NVMLError_DriverNotLoaded: Driver Not Loaded", "Driver Not Loaded"),
        ("Found no NVIDIA driver on your system. Please check", "Found no NVIDIA driver on your system"),
    ],
)
def test_nvmls_words_go_to_the_driver(text: str, words: str) -> None:
    assert _read(text).driver == Driver(nvml_error=words)


def test_the_list_of_architectures_and_the_card_go_to_torch() -> None:
    runtime = _read(
        "UserWarning: \nNVIDIA RTX PRO 6000 with CUDA capability sm_120 is not compatible with the current PyTorch "
        "installation.\nThe current PyTorch install supports CUDA capabilities sm_80 sm_90 compute_90.\nIf you want"
    ).torch_runtime
    assert runtime is not None
    assert runtime.arch_list == ("sm_80", "sm_90", "compute_90")
    assert (runtime.device_names, runtime.capabilities) == (("NVIDIA RTX PRO 6000",), ("12.0",))


def test_where_torch_prints_bounds_alone_they_stand_for_the_list() -> None:
    runtime = _read(
        "    Found GPU0 Tesla K40c which is of cuda capability 3.5.\n    PyTorch no longer supports this GPU because "
        "it is too old.\n    The minimum cuda capability supported by this library is 3.7."
    ).torch_runtime
    assert runtime is not None
    assert (runtime.arch_list, runtime.capabilities) == (("sm_37",), ("3.5",))


def test_versions_of_cudnn_go_to_torchs_libraries() -> None:
    runtime = _read(
        "RuntimeError: cuDNN version incompatibility: PyTorch was compiled  against (9, 1, 0) but found runtime "
        "version (9, 0, 0). PyTorch already comes bundled"
    ).torch_runtime
    assert runtime is not None
    assert runtime.libraries == (LoadedVersion(name="cudnn", compiled="9.1.0", loaded="9.0.0"),)


def test_a_card_and_the_format_it_was_asked_for_go_to_torch() -> None:
    runtime = _read(
        "ValueError: Bfloat16 is only supported on GPUs with compute capability of at least 8.0. Your Tesla T4 GPU has "
        "compute capability 7.5. You can use float16"
    ).torch_runtime
    assert runtime is not None
    assert runtime.precision is not None
    assert (runtime.precision.wanted, runtime.capabilities) == ("bf16", ("7.5",))


@pytest.mark.parametrize(
    "text",
    [
        (
            "NCCL WARN Call to posix_fallocate failed : No space left on device\n"
            "NCCL WARN Error while creating shared memory segment nccl-shm-1 (size 4194304)"
        ),
        "NCCL WARN Error: failed to extend /dev/shm/nccl-aB3 to 4194304 bytes, error: No space left on device (28)",
        (
            "NCCL WARN Error while creating shared memory segment /dev/shm/nccl-x (size 4194304), error: No space left "
            "on device (28)"
        ),
    ],
)
def test_what_shared_memory_refused_is_read(text: str) -> None:
    assert _read(text).shm == Shm(refused_bytes=4194304)


def test_a_disk_that_is_full_is_not_shared_memory() -> None:
    assert error_text.read("OSError: [Errno 28] No space left on device: '/data/ckpt.pt'") is None


def test_an_engines_refusal_goes_to_the_container() -> None:
    text = "docker: Error response from daemon: OCI runtime create failed: nvidia-container-cli: requirement error: "
    container = _read(text + "unsatisfied condition: cuda>=12.8, please update your driver").container
    assert container is not None
    assert (container.runtime_error or "").endswith("unsatisfied condition: cuda>=12.8")


def test_a_container_started_without_gpus_is_seen_where_no_driver_is_found() -> None:
    started = "$ docker run --rm -it{} image python -c 'import torch; torch.zeros(1).cuda()'\n"
    error = "RuntimeError: Found no NVIDIA driver on your system."
    assert _read(started.format("") + error).container == Container(kind="docker")
    assert _read(started.format(" --gpus all") + error).container is None


def test_ranks_parameters_and_functions_are_named() -> None:
    unused = _only(
        "[rank0]: RuntimeError: Expected to have finished reduction in the prior iteration before starting a new one. "
        "... \n[rank0]: Parameters which did not receive grad for rank 0: head.weight, head.bias\n"
        "[rank0]: Parameter indices which did not receive grad for rank 0: 4 5"
    )
    assert unused.words == {"parameters": "head.weight, head.bias", "indices": "4 5"}
    recompiled = _only(
        "W0110 12:27:06 158 torch/_dynamo/convert_frame.py:906] [0/8] torch._dynamo hit config.cache_size_limit (8)\n"
        "W0110 12:27:06 158 torch/_dynamo/convert_frame.py:906] [0/8]    function: 'forward' (/x/model.py:12)\n"
        "W0110 12:27:06 158 torch/_dynamo/convert_frame.py:906] [0/8]    last reason: 0/7: size mismatch at index 0\n"
        "W0110 12:27:06 158 torch/_dynamo/convert_frame.py:906] [0/8] To log all recompilation reasons"
    )
    assert (recompiled.numbers["limit"], recompiled.words["function"]) == (8, "forward")


def test_a_message_is_found_in_a_long_log_at_either_end() -> None:
    noise = "step 1 | loss 0.1 | out of memory of things\n" * 3000
    for text in (OOM_NEW + "\n" + noise, noise + OOM_NEW):
        assert _only(text).rank == 1


def test_a_package_that_names_the_torch_it_was_built_for_does_not_fit() -> None:
    packages = _read(
        "WARNING[XFORMERS]: xFormers can't load C++/CUDA extensions. xFormers was built for:\n"
        "    PyTorch 2.1.0+cu121 with CUDA 1201 (you have 2.0.1+cu118)\n"
    ).packages
    assert packages is not None
    assert packages.installed[0].name == "xformers"


def test_torchs_own_cuda_errors_show_that_it_is_built_for_cuda() -> None:
    torch = _read("RuntimeError: Unexpected error from cudaGetDeviceCount(). ... Error 304: OS call failed").torch
    assert torch is not None
    assert torch.build == "cuda"
