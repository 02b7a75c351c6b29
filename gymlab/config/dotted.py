"""Nested settings under dotted keys."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


def flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested data by dotted key."""
    result: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, Mapping) and value:
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[f"{prefix}{key}"] = value
    return result
