"""What a training computes on: the same settings give the same numbers only where this is the same too."""

from __future__ import annotations

import platform
from pathlib import Path
from typing import Any

import torch

from gymlab.components.compiled import compiles
from gymlab.envs.pace import cores


def processor_name() -> str:
    """The processor as the system calls it."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except FileNotFoundError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


def device_name(device: torch.device) -> str:
    """A device with its name, where it has one."""
    return f"cuda ({torch.cuda.get_device_name(device)})" if device.type == "cuda" else device.type


def machine(device: torch.device) -> dict[str, Any]:
    """What numbers depend on besides the versions of packages."""
    return {
        "processor": processor_name(),
        "instructions": torch.backends.cpu.get_cpu_capability(),
        "cores": cores(),
        "threads": torch.get_num_threads(),
        "device": device_name(device),
        "kernels": "on" if compiles() else "off",
    }
