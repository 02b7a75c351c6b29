"""A registry of names: what a config may refer to. Names are looked up here and never imported by path."""

from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from gymlab.errors import ConfigError, Unregistered, did_you_mean

T = TypeVar("T")


class Registry(Generic[T]):
    """Maps names to classes or functions; an unknown name is an error that lists the nearest known ones."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator: make the decorated object known under `name`. A second object under one name is refused."""

        def add(entry: T) -> T:
            known = self._entries.get(name)
            if known is not None and known is not entry:
                raise ConfigError(f"{self.kind} {name!r} is registered already by {known!r}; choose another name.")
            self._entries[name] = entry
            return entry

        return add

    def get(self, name: str) -> T:
        """The object registered under `name`."""
        if name not in self._entries:
            hint = did_you_mean(name, self._entries)
            raise Unregistered(
                f"Unknown {self.kind} {name!r}. {hint} Known: {', '.join(sorted(self._entries)) or 'none'}. "
                f"A class of your own is registered in a module given by --plugin."
            )
        return self._entries[name]

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._entries))
