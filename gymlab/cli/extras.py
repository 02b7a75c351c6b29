"""What gymlab's optional parts need, read from the package's own metadata, and whether it is installed."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions, version

from packaging.requirements import Requirement

DEVELOPMENT = "dev"
"""The extra for working on gymlab itself: of no use to somebody who trains."""


@dataclass(frozen=True)
class Extra:
    """An optional part of gymlab."""

    name: str
    """As pip knows it: `gymlab[box2d]`."""
    installed: dict[str, str]
    """Version by package, of those that are there."""
    missing: tuple[str, ...]

    @property
    def pip_line(self) -> str:
        """The command that installs it."""
        return f"pip install '{self.name}'"


def extras(besides: Container[str] = ()) -> list[Extra]:
    """Every extra of gymlab but the one for development and those in `besides`."""
    names = distribution("gymlab").metadata.get_all("Provides-Extra") or []
    return [extra(f"gymlab[{name}]") for name in names if name != DEVELOPMENT and name not in besides]


@cache
def extra(name: str) -> Extra:
    """One extra, e.g. `gymlab[box2d]`: which of its packages are installed."""
    package, _, part = name.removesuffix("]").partition("[")
    found = {needed: package_version(needed) for needed in dict.fromkeys(_packages(package, part))}
    installed = {needed: number for needed, number in found.items() if number is not None}
    return Extra(name, installed, tuple(needed for needed in found if needed not in installed))


def package_version(name: str) -> str | None:
    """The installed version; None when the package is not there."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


@cache
def _distributions() -> Mapping[str, list[str]]:
    return packages_distributions()


def version_of_module(module: str) -> str:
    """Version of the package that a module comes from."""
    names = _distributions().get(module, [module])
    return package_version(names[0]) or "of unknown version"


def _packages(package: str, extra_name: str) -> Iterator[str]:
    """Packages that an extra of a package asks for; an extra of an extra (`gymnasium[box2d]`) is followed."""
    for line in distribution(package).requires or ():
        requirement = Requirement(line)
        always = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
        if always or (requirement.marker is not None and not requirement.marker.evaluate({"extra": extra_name})):
            continue
        if not requirement.extras or package_version(requirement.name) is None:
            yield requirement.name
            continue
        for nested in sorted(requirement.extras):
            yield from _packages(requirement.name, nested)
