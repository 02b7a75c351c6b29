"""What can be trained: every environment file and its variants, without importing anything heavy."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gymlab.config.compose import group_choices
from gymlab.config.environment_files import EnvironmentFile, Library, search_roots
from gymlab.config.environment_ids import family_of
from gymlab.config.names import NO_ALGORITHMS, Algorithms, algorithm_name
from gymlab.errors import ConfigError


@dataclass(frozen=True)
class VariantEntry:
    """One variant of an environment."""

    name: str
    algo_id: str
    description: str
    obs_type: str | None = None
    """What is observed, where the variant chooses; it may need more installed."""


@dataclass(frozen=True)
class ExperimentEntry:
    """One environment with its variants; files of one name on the search path are one entry."""

    name: str
    """Before the colon: the stem of the file."""
    env_id: str
    family: str
    path: Path
    """The strongest file of that name."""
    variants: tuple[VariantEntry, ...]
    description: str

    @property
    def experiments(self) -> list[str]:
        """What to type after `gymlab train`."""
        return [f"{self.name}:{variant.name}" for variant in self.variants]


def discover(config_dir: Path | None = None, algorithms: Algorithms = NO_ALGORITHMS) -> list[ExperimentEntry]:
    """All environments with experiments, by name; files that do not load are left out.

    Whose algorithms' fields may stand at the root of a file is asked only where a mapping there does not say what it is.
    """
    library = Library(search_roots(config_dir), [], algorithms)
    files: dict[str, list[EnvironmentFile]] = {}
    for file in library.files():
        files.setdefault(file.path.stem, []).append(file)
    return [_entry(name, files[name], library) for name in sorted(files) if any(file.variants for file in files[name])]


def composed_experiments(config_dir: Path | None = None) -> list[str]:
    """Names for `experiment=`."""
    return group_choices("experiment", search_roots(config_dir))


def _entry(name: str, files: list[EnvironmentFile], library: Library) -> ExperimentEntry:
    variants: dict[str, VariantEntry] = {}
    env_id = description = ""
    for file in files:
        for variant in file.variants:
            try:
                fields = library.inherited(file, variant)
            except ConfigError:
                continue
            algo = algorithm_name(str(fields.get("algo_id") or variant))
            about, observed = str(fields.get("description") or ""), fields.get("obs_type")
            variants.setdefault(variant, VariantEntry(variant, algo, about, str(observed) if observed else None))
            env_id = env_id or str(fields.get("env_id") or "")
            spec = fields.get("spec")
            description = description or (str(spec.get("description") or "") if isinstance(spec, dict) else "")
    return ExperimentEntry(
        name, env_id or name, family_of(env_id or name), files[0].path, tuple(variants.values()), description.strip()
    )
