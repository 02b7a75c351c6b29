"""Errors whose message is written for the user: what is wrong, where, and the fix."""

import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

_EMPTY_PART = re.compile(r"(?<=[.:?;]) {2,}(?=\S)")
_TWO_STOPS = re.compile(r"(?<=[\w)\]'\"`])\.\.(?=\s|$)")


class GymlabError(Exception):
    """Anything the user can put right. The command line prints the message alone, without a traceback."""

    def __init__(self, message: str = "") -> None:
        # Messages are put together of parts: one may be empty, and one may be a sentence that ends itself.
        super().__init__(_TWO_STOPS.sub(".", _EMPTY_PART.sub(" ", message)).rstrip())


class ConfigError(GymlabError):
    """A configuration that does not load: names the file, the key, what was expected and the nearest right name."""


class Unregistered(ConfigError):
    """A name that nothing has registered: a module of the user's own may, if it is given with `--plugin`."""


class EnvironmentFailure(GymlabError):
    """An environment that cannot be made or that returned something unusable (a NaN, a wrong shape)."""


class UnknownEnvironment(EnvironmentFailure, Unregistered):
    """An environment's id that neither Gymnasium nor a family or plugin has registered."""


class NotInstalled(EnvironmentFailure):
    """Something that an environment needs is not on this machine (a package, a ROM, a WAD); the message says how to get it."""


class CheckpointError(GymlabError):
    """A run or checkpoint that is missing, damaged or does not fit."""


class RunGone(GymlabError):
    """The directory of a run went away while it trained."""

    def __init__(self, directory: Path) -> None:
        what = "was emptied or replaced" if directory.is_dir() else "is gone, deleted or moved away"
        super().__init__(
            f"Run {directory.name} stopped: its directory {directory} {what} while it trained. "
            "Nothing more of it can be saved. If it was moved, go on with it there: gymlab train --resume PATH; else train again."
        )


class NonFiniteError(GymlabError):
    """A tensor with NaN or Inf in it: names the tensor and the step, and carries the data in which it was found."""

    def __init__(self, message: str, *, tensor: str = "unknown", data: Mapping[str, Any] | None = None) -> None:
        super().__init__(message)
        self.tensor = tensor
        """Name of the tensor, e.g. `reward` or `loss/policy`."""
        self.data: dict[str, Any] = dict(data or {})
        """Arrays to look at, by name; the engine adds the batch and writes them into the run."""


NEAR = 0.6
"""Likeness (of difflib) from which a name may have been meant: below it a question sends people astray."""


def did_you_mean(name: str, known: Iterable[str], most: int = 3) -> str:
    """A sentence with the nearest known names, `most` at most, or an empty string when nothing is near."""
    options = list(known)
    # Comparing takes the product of the lengths, and no name is this long.
    name = name[:100]
    by_lower = {option.lower(): option for option in options}
    close = [by_lower[match] for match in get_close_matches(name.lower(), by_lower, n=most, cutoff=NEAR)]
    if not close:
        return ""
    return "Did you mean " + " or ".join(repr(match) for match in close) + "?"
