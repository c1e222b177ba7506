"""Number formats: which torch uses, which the cards can do."""

from gpudoctor.facts.base import Fact


class Precision(Fact, frozen=True, kw_only=True):
    """Read in the torch child; every read is guarded, since torch raises when old and new settings are mixed."""

    wanted: str | None = None
    """Format the job itself asks for, where an error text or its arguments tell: `tf32`, `bf16`, …"""
    float32_matmul: str | None = None
    """torch.get_float32_matmul_precision(): `highest`, `high` or `medium`."""
    matmul_allow_tf32: bool | None = None
    """torch.backends.cuda.matmul.allow_tf32 (the old switch)."""
    matmul_fp32_precision: str | None = None
    """torch.backends.cuda.matmul.fp32_precision (torch 2.9 and newer): `none`, `ieee`, `tf32`."""
    cudnn_allow_tf32: bool | None = None
    bf16_native: bool | None = None
    """torch.cuda.is_bf16_supported(including_emulation=False)."""
