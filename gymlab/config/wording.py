"""Words that error messages share."""

from collections.abc import Iterable

from gymlab.errors import did_you_mean


def hint(name: str, known: Iterable[str]) -> str:
    """The nearest known names as a sentence with a space after it, or nothing."""
    sentence = did_you_mean(name, known)
    return f"{sentence} " if sentence else ""


def listing(names: Iterable[str]) -> str:
    """Names in a row, or the word for there being none."""
    return ", ".join(names) or "none"
