"""Blanks secrets before anything is written or uploaded: by the name of a key and by the look of a value."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

REDACTED = "[redacted]"

_SECRET_WORDS = {"token", "tokens", "secret", "secrets", "password", "passwords", "passwd", "pwd", "passphrase"}
_SECRET_WORDS |= {"credential", "credentials", "authorization", "cookie", "apikey"}
_KEY_OWNERS = {"api", "access", "private", "secret", "auth", "ssh", "signing", "encryption", "wandb", "hf", "account"}
_NUMBER_WORDS = {"password", "passwd", "pwd", "passphrase", "secret"}
"""Words whose value is blanked even when it is a number; a `token_dim` of 64 is no secret."""
_HASH_WORDS = {"commit", "sha", "sha1", "revision", "hash", "digest"}
"""Keys whose 40 hex digits are a git commit and not a W&B key."""

_NAME = r"[\w-]*(?:token|secret|passw(?:or)?d|passphrase|api[_-]?key|access[_-]?key)"
_HEX_KEY = re.compile(r"(?<![0-9A-Za-z])(?<!commit )[0-9a-f]{40}(?![0-9A-Za-z])")
_TOKENS = re.compile(
    r"(?<![0-9A-Za-z])(?:"
    r"hf_[A-Za-z0-9]{16,}|wandb_v\d+_\w{20,}|sk-[A-Za-z0-9_-]{16,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}"
    r"|glpat-[\w-]{16,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|xox[abprs]-[\w-]{10,}|a[ks]-[A-Za-z0-9]{20,}|eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]{8,}"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----"
    r")",
    re.DOTALL,
)
_USER_INFO = re.compile(r"(\b[a-z][a-z0-9+.-]*://)(?!git@)[^/\s@]+@", re.IGNORECASE)
_ASSIGNED = re.compile(rf"({_NAME}[\"']?\s*[=:]\s*[\"']?)(?![\d.]+\b)[^\s\"'&,}}]{{4,}}", re.IGNORECASE)
_FLAG = re.compile(rf"(--{_NAME}\s+)\S+", re.IGNORECASE)
_BARE_FLAG = re.compile(rf"--{_NAME}", re.IGNORECASE)
_BEARER = re.compile(r"(\b(?:bearer|authorization:\s*basic)\s+)[A-Za-z0-9._~+/=-]{8,}", re.IGNORECASE)


def redact(value: Any) -> Any:
    """A copy of nested mappings and sequences with every secret blanked; the original is left alone."""
    return _redact(value, keep_hashes=False)


def redact_text(text: str) -> str:
    """Text without tokens, keys, `password=...` assignments and user names in URLs."""
    return _blank_patterns(_HEX_KEY.sub(REDACTED, text))


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


def _redact(value: Any, keep_hashes: bool) -> Any:
    if isinstance(value, str):
        return _blank_patterns(value if keep_hashes else _HEX_KEY.sub(REDACTED, value))
    if isinstance(value, bytes):
        text = value.decode("utf-8", errors="surrogateescape")
        return redact_text(text).encode("utf-8", errors="surrogateescape")
    if isinstance(value, Mapping):
        return {_redact(key, False): _redact_entry(key, item, keep_hashes) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        items = [
            REDACTED if _follows_secret_flag(value, index) else _redact(item, keep_hashes)
            for index, item in enumerate(value)
        ]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, (set, frozenset)):
        return type(value)(_redact(item, keep_hashes) for item in value)
    return value


def _redact_entry(key: Any, item: Any, keep_hashes: bool) -> Any:
    if not isinstance(key, str):
        return _redact(item, keep_hashes)
    words = _words(key)
    if is_secret_key(key):
        return _blank_leaves(item, numbers=any(word in _NUMBER_WORDS for word in words))
    return _redact(item, keep_hashes or any(word in _HASH_WORDS for word in words))


def _blank_leaves(value: Any, numbers: bool) -> Any:
    if isinstance(value, Mapping):
        return {_redact(key, False): _blank_leaves(item, numbers) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return type(value)(_blank_leaves(item, numbers) for item in value)
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return REDACTED if (isinstance(value, (str, bytes)) and value) or (numbers and is_number) else value


def _follows_secret_flag(items: list[Any] | tuple[Any, ...], index: int) -> bool:
    """Whether an argument list has `--api-key` just before this argument."""
    return index > 0 and isinstance(items[index - 1], str) and _BARE_FLAG.fullmatch(items[index - 1]) is not None


def _blank_patterns(text: str) -> str:
    text = _TOKENS.sub(REDACTED, text)
    text = _USER_INFO.sub(rf"\1{REDACTED}@", text)
    text = _BEARER.sub(rf"\1{REDACTED}", text)
    text = _FLAG.sub(rf"\1{REDACTED}", text)
    return _ASSIGNED.sub(rf"\1{REDACTED}", text)
