"""What the processor can do."""

from __future__ import annotations

from pathlib import Path


def computes_bfloat16(cpuinfo: Path = Path("/proc/cpuinfo")) -> bool:
    """Whether the processor multiplies in bfloat16; one that only converts it gains nothing."""
    try:
        text = cpuinfo.read_text(encoding="utf-8")
    except FileNotFoundError:
        return False
    flags = next((line for line in text.splitlines() if line.startswith("flags")), "")
    return bool({"avx512_bf16", "amx_bf16"} & set(flags.split()))
