"""Print the rows of a new torch release for gpudoctor/tables/torch_releases.toml, from the METADATA of its wheel.

    python docs/add_torch_release.py 2.16.0                       asks pip, which reads the metadata and not the wheel
    python docs/add_torch_release.py --metadata METADATA 2.16.0   reads a file

Add --append to write them at the end of the table. --arch-list takes what torch.cuda.get_arch_list() prints with that
wheel; --python, --variants, --torchvision and --torchaudio take what the metadata does not say. Standard library only.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from datetime import date
from email.parser import HeaderParser
from pathlib import Path

TABLE = Path(__file__).parents[1] / "gpudoctor/tables/torch_releases.toml"
PIN = re.compile(
    r"(?:nvidia-)?(cublas|cudnn|nccl|triton|cuda-runtime|cuda-toolkit)(?:-cu\d+)?(?:\[[^]]*\])? ?\(?==([\d.]+\d)"
)


def from_pip(version: str) -> list[str]:
    """Requires-Dist of the wheel for Linux x86_64; no wheel is installed. Raises CalledProcessError."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--no-deps", "--quiet"]
    target = ["--report", "-", "--only-binary", ":all:", "--platform", "manylinux_2_28_x86_64", "--target", "unused"]
    report = subprocess.run([*command, *target, f"torch=={version}"], check=True, capture_output=True, text=True)
    (entry,) = json.loads(report.stdout)["install"]
    return list(entry["metadata"].get("requires_dist", []))


def from_file(path: Path) -> list[str]:
    """Requires-Dist of a METADATA file."""
    return HeaderParser().parsestr(path.read_text(encoding="utf-8")).get_all("Requires-Dist") or []


def pins(requirements: list[str]) -> dict[str, str]:
    """Library → exact version; the CUDA runtime's (or the toolkit's) is the CUDA of the wheel."""
    found = dict(match.groups() for line in requirements if (match := PIN.match(line)))
    cuda = found.pop("cuda-runtime", None) or found.pop("cuda-toolkit", None)
    found.pop("cuda-toolkit", None)
    return {"cuda": ".".join(cuda.split(".")[:2]), **found} if cuda else found


def rows(version: str, found: dict[str, str], options: argparse.Namespace) -> str:
    """TOML. Raises SystemExit where the metadata does not tell the CUDA it was built for."""
    if "cuda" not in found:
        raise SystemExit("the metadata requires no exact CUDA runtime: is it the wheel for Linux x86_64?")
    source = f"METADATA of the torch {version} wheel for Linux x86_64, {date.today()}"
    release = {"version": version, "python": options.python, "cuda": found["cuda"], "variants": options.variants}
    release |= {name: found.get(name) for name in ("cudnn", "nccl", "cublas", "triton")}
    release |= {"torchvision": options.torchvision, "torchaudio": options.torchaudio, "source": source}
    text = _table("release", release)
    if options.arch_list:
        arch = [_capability(name) for name in options.arch_list if name.startswith("sm_")]
        ptx = next((_capability(name) for name in options.arch_list if name.startswith("compute_")), "none")
        minor = ".".join(version.split(".")[:2])
        code = {"torch": minor, "cuda": found["cuda"], "machine": "x86_64", "arch": arch, "ptx": ptx}
        text += _table("code", {**code, "source": f"torch.cuda.get_arch_list() of {version}, {date.today()}"})
    return text


def _table(name: str, values: dict[str, object]) -> str:
    lines = [f"{key} = {json.dumps(value)}" for key, value in values.items() if value]
    return "\n".join(["", f"[[{name}]]", *lines, ""])


def _capability(arch: str) -> str:
    digits = re.sub(r"\D", "", arch)
    return f"{digits[:-1]}.{digits[-1]}"


def main(arguments: list[str] | None = None) -> None:
    """Print the rows, or append them."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("version")
    parser.add_argument("--metadata", type=Path, help="METADATA file of the wheel (default: ask pip)")
    parser.add_argument("--python", nargs="+", required=True, help="tags of its wheels, such as cp312 cp314t")
    parser.add_argument("--variants", nargs="+", help="CUDA tags on PyTorch's own index, such as cu126 cu130")
    parser.add_argument("--arch-list", nargs="+", help="what torch.cuda.get_arch_list() gives")
    parser.add_argument("--torchvision", help="the release made for it")
    parser.add_argument("--torchaudio", help="the release made for it")
    parser.add_argument("--append", action="store_true", help="write to the table (default: print)")
    options = parser.parse_args(arguments)
    requirements = from_file(options.metadata) if options.metadata else from_pip(options.version)
    text = rows(options.version, pins(requirements), options)
    if options.append:
        with TABLE.open("a", encoding="utf-8") as table:
            table.write(text)
    else:
        sys.stdout.write(text)


if __name__ == "__main__":
    main()
