"""Blanks secrets before anything is written or uploaded: by the name of a key, by the look of a value, and by the values known.

redact(config)             a config to be stored: values under names such as `password`, and what looks like a token
remember_secrets(config)   the values that `redact` blanks in this config are secret from here on ...
redact_text(text)          ... and blanked in any text, as they are and as quoting writes them, besides what looks like a token
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import Any
from urllib.parse import quote, quote_plus, unquote

REDACTED = "[redacted]"
SHORTEST = 4
"""Known values of fewer characters are left alone in texts: they would blank half of a log."""
SHORTEST_NUMBER = 6
"""The same for values of digits alone: a log is full of numbers."""
SHORTEST_INSIDE = 8
"""Known values of fewer characters are blanked as whole words, not inside of longer ones."""

_SECRET_WORDS = {"token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase"}
_SECRET_WORDS |= {"credential", "credentials", "authorization", "cookie", "apikey"}
_KEY_OWNERS = {"api", "access", "private", "secret", "auth", "ssh", "signing", "encryption", "wandb", "hf", "account"}
_NUMBER_WORDS = {"password", "passwd", "pwd", "passphrase", "secret"}
"""Words whose value is blanked even when it is a number; a `token_dim` of 64 is no secret."""
_HASH_WORDS = {"commit", "sha", "sha1", "revision", "hash", "digest"}
"""Keys whose 40 hex digits are a git commit and not a W&B key."""

_COMMON = {"true", "false", "none", "null", "auto", "default", "user", "admin", "root", "guest", "public", "anonymous"}
_COMMON |= {"test", "train", "info", "notice", "warning", "phase", "epoch", "steps", "return", "episode", "evaluation"}
"""Values that are words of every log, and no secret anyway."""

# Where a repeat could begin anywhere in a long text it has an upper bound: without one the time grows with the square of the text.
_SECRET_NAME = r"(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key)"
_NAME = rf"[\w-]{{0,80}}{_SECRET_NAME}"
_HEX_KEY = re.compile(r"(?<![0-9A-Za-z])(?<!commit )(?P<secret>[0-9a-f]{40})(?![0-9A-Za-z])")
_TOKENS = re.compile(
    r"(?<![0-9A-Za-z])(?P<secret>"
    r"hf_[A-Za-z0-9]{16,}|wandb_v\d+_\w{20,}|sk-[A-Za-z0-9_-]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|a[ks]-[A-Za-z0-9]{20,}|eyJ[\w-]{8,1000}\.[\w-]{8,}\.[\w-]{8,}"
    r"|-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----.{0,10000}?-----END [A-Z ]{0,40}PRIVATE KEY-----"
    r")",
    re.DOTALL,
)
_USER_INFO = re.compile(r"\b[a-z][a-z0-9+.-]{0,40}://(?!git@)(?P<secret>[^/\s@]+)@", re.IGNORECASE)
_ASSIGNED = re.compile(
    rf"{_SECRET_NAME}[\"']?\s*[=:]\s*[\"']?(?![\d.]+\b)(?P<secret>[^\s\"'&,}}]{{4,}})", re.IGNORECASE
)
_FLAG = re.compile(rf"--{_NAME}\s+(?P<secret>\S+)", re.IGNORECASE)
_BARE_FLAG = re.compile(rf"--{_NAME}", re.IGNORECASE)
_BEARER = re.compile(r"\b(?:bearer|authorization:\s*basic)\s+(?P<secret>[A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)

_known: set[str] = set()
_known_pattern: re.Pattern[str] | None = None


def redact(value: Any) -> Any:
    """A copy of nested mappings and sequences with every secret blanked; the original is left alone."""
    return _Blanks().value(value)


def redact_text(text: str) -> str:
    """Text without known secrets, tokens, keys, `password=...` assignments and user names in URLs."""
    if _known_pattern is not None:
        text = _known_pattern.sub(REDACTED, text)
    return _Blanks().text(text)


def remember_secrets(config: Any) -> None:
    """Have `redact_text` blank the values that `redact` blanks in this config, for the life of the process."""
    global _known_pattern
    blanks = _Blanks()
    blanks.value(config)
    new = {form for value in blanks.found for form in _forms(value)} - _known
    if not new:
        return
    _known.update(new)
    # The longest first: one may be the beginning of another.
    _known_pattern = re.compile("|".join(map(_as_pattern, sorted(_known, key=len, reverse=True))))


def forget_secrets() -> None:
    """Know no value any more."""
    global _known_pattern
    _known.clear()
    _known_pattern = None


def _forms(value: str) -> Iterator[str]:
    """A secret as it may stand in a text: alone, in parts, in quotes of several kinds, in an address."""
    parts = [value, unquote(value)]
    user, colon, password = value.partition(":")
    if colon and "/" not in user:
        parts += [password, unquote(password)]
    if "\n" in value:
        parts += [line for line in value.splitlines() if len(line) >= SHORTEST_INSIDE]
    for part in parts:
        if not _is_telling(part):
            continue
        yield part
        yield repr(part)[1:-1]
        yield from (json.dumps(part, ensure_ascii=ascii_only)[1:-1] for ascii_only in (True, False))
        yield from (quote(part, safe=""), quote_plus(part), part.replace("'", "'\"'\"'"))


def _is_telling(value: str) -> bool:
    """Whether a value is long and rare enough to be looked for in texts."""
    least = SHORTEST_NUMBER if re.fullmatch(r"[\d.,+-]*", value) else SHORTEST
    return len(value.strip()) >= least and value.lower() not in _COMMON and REDACTED not in value


def _as_pattern(value: str) -> str:
    escaped = re.escape(value)
    return escaped if len(value) >= SHORTEST_INSIDE else rf"(?<!\w){escaped}(?!\w)"


def is_secret_key(key: str) -> bool:
    """Whether a name says that its value is secret: `hf_token`, `apiKey`, `password`; not `tokenizer`, `step_key`."""
    words = _words(key)
    if not words or words == ["key"]:
        return bool(words)
    return any(word in _SECRET_WORDS for word in words) or any(
        owner in _KEY_OWNERS and word in {"key", "keys"} for owner, word in pairwise(words)
    )


def _words(key: str) -> list[str]:
    spaced = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", key)
    return [word.lower() for word in re.split(r"[^A-Za-z0-9]+", spaced) if word]


class _Blanks:
    """Blanks what is secret in a value, and keeps what it blanked."""

    def __init__(self) -> None:
        self.found: set[str] = set()

    def value(self, value: Any, keep_hashes: bool = False) -> Any:
        """A copy with its secrets blanked; `keep_hashes` for what is said to be a commit or a checksum."""
        if isinstance(value, str):
            return self.text(value, keep_hashes)
        if isinstance(value, bytes):
            text = value.decode("utf-8", errors="surrogateescape")
            return self.text(text).encode("utf-8", errors="surrogateescape")
        if isinstance(value, Mapping):
            return {self.value(key): self._entry(key, item, keep_hashes) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            items = [
                self._leaves(item, numbers=True)
                if _follows_secret_flag(value, index)
                else self.value(item, keep_hashes)
                for index, item in enumerate(value)
            ]
            return items if isinstance(value, list) else tuple(items)
        if isinstance(value, (set, frozenset)):
            return type(value)(self.value(item, keep_hashes) for item in value)
        return value

    def text(self, text: str, keep_hashes: bool = False) -> str:
        """A text without what looks like a secret."""
        patterns = (_TOKENS, _USER_INFO, _BEARER, _FLAG, _ASSIGNED)
        for pattern in patterns if keep_hashes else (_HEX_KEY, *patterns):
            text = pattern.sub(self._blank_match, text)
        return text

    def _blank_match(self, match: re.Match[str]) -> str:
        if match.re is _HEX_KEY and _in_a_path(match):
            return match[0]
        self.found.add(match["secret"])
        start, end = match.start("secret") - match.start(), match.end("secret") - match.start()
        return match[0][:start] + REDACTED + match[0][end:]

    def _entry(self, key: Any, item: Any, keep_hashes: bool) -> Any:
        if not isinstance(key, str):
            return self.value(item, keep_hashes)
        words = _words(key)
        if is_secret_key(key):
            return self._leaves(item, numbers=any(word in _NUMBER_WORDS for word in words))
        return self.value(item, keep_hashes or any(word in _HASH_WORDS for word in words))

    def _leaves(self, value: Any, numbers: bool) -> Any:
        if isinstance(value, Mapping):
            return {self.value(key): self._leaves(item, numbers) for key, item in value.items()}
        if isinstance(value, (list, tuple, set, frozenset)):
            return type(value)(self._leaves(item, numbers) for item in value)
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not ((isinstance(value, (str, bytes)) and value) or (numbers and is_number)):
            return value
        self.found.add(value.decode("utf-8", errors="surrogateescape") if isinstance(value, bytes) else str(value))
        return REDACTED


def _in_a_path(match: re.Match[str]) -> bool:
    """Whether digits are a directory's or a file's name, as stores and caches give them; in an address they may be a key."""
    text = match.string
    start = max(text.rfind(sign, 0, match.start()) for sign in " \t\n\"'=,(") + 1
    return "/" in (text[match.start() - 1 : match.start()], text[match.end() : match.end() + 1]) and (
        "://" not in text[start : match.start()]
    )


def _follows_secret_flag(items: list[Any] | tuple[Any, ...], index: int) -> bool:
    """Whether an argument list has `--api-key` just before this argument."""
    return index > 0 and isinstance(items[index - 1], str) and _BARE_FLAG.fullmatch(items[index - 1]) is not None
