"""Environment files: where they are found, their sections, and what a section inherits.

The user's files lie on top of ours: roots are searched in order (`--config-dir`, `./conf`, `./config`, the package), so
a file of the same name adds its variants to ours, and a variant of the same name replaces ours as a whole. `./conf` and
`./config` belong to whoever works there: they are searched only if they hold experiments.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from gymlab.config.dialects import refuse_two_spellings
from gymlab.config.names import (
    NO_ALGORITHMS,
    STRUCTURE,
    Algorithms,
    algorithm_name,
    file_stem,
    is_field,
    is_section,
    near_field,
    says_section,
)
from gymlab.config.schema import Config
from gymlab.config.yaml_reader import Located, Where, read_yaml
from gymlab.errors import ConfigError, did_you_mean

PACKAGE_CONF = Path(__file__).resolve().parent.parent / "conf"


HERE = (Path("conf"), Path("config"))
"""Searched without being named."""
MOST_FILES = 5
"""Files of a folder that are named."""

_KINDS = {
    "environments": ("**/*.yaml", "**/*.yml"),
    "experiment": ("*.yaml",),
    "hyperparams": ("*.yaml",),
}
"""Folders of a root that hold experiments, and their files."""


def search_roots(config_dir: Path | None = None) -> list[Path]:
    """Directories that hold config files, the strongest first."""
    if config_dir is not None:
        _check_config_dir(config_dir)
    here = [directory for directory in HERE if _contents(directory)]
    candidates = [*([config_dir] if config_dir is not None else []), *here, PACKAGE_CONF]
    return list(dict.fromkeys(candidate.resolve() for candidate in candidates))


def found_here() -> list[str]:
    """A line for each directory that is searched without being named: the files in it."""
    return [
        f"./{directory} is searched: {'; '.join(_files_of(directory / kind, paths) for kind, paths in contents.items())}."
        for directory in HERE
        if (contents := _contents(directory))
    ]


def _files_of(folder: Path, paths: list[Path]) -> str:
    """`environments/ holds the files a.yaml, b.yaml and 3 more`."""
    names = [str(path.relative_to(folder)) for path in sorted(paths)]
    more = f" and {len(names) - MOST_FILES} more" if len(names) > MOST_FILES else ""
    return f"{folder.name}/ holds the file{'s' * (len(names) > 1)} {', '.join(names[:MOST_FILES])}{more}"


def _contents(root: Path) -> dict[str, list[Path]]:
    """The experiments that a directory holds, by folder."""
    found = {
        kind: [path for pattern in patterns for path in (root / kind).glob(pattern)]
        for kind, patterns in _KINDS.items()
    }
    return {kind: paths for kind, paths in found.items() if paths}


def _check_config_dir(directory: Path) -> None:
    """A directory that the user names must hold something: a typo would else go unseen."""
    if not directory.is_dir():
        raise ConfigError(f"--config-dir {directory}: there is no such directory.")
    if _contents(directory) or any(directory.glob("*.yaml")):
        return
    below = sorted({path.parent for kind in _KINDS for path in directory.rglob(kind) if _contents(path.parent)})
    if below or not any(directory.glob("*/**/*.yaml")):
        near = f" Did you mean --config-dir {below[0]}?" if below else ""
        raise ConfigError(
            f"--config-dir {directory}: there is nothing to find in it. It is to hold environments/*.yaml, "
            f"experiment/*.yaml or config groups.{near}"
        )


@dataclass(frozen=True)
class EnvironmentFile:
    """One file: its base, its variants, and the names under which it is looked up."""

    path: Path
    document: Located
    algorithms: Algorithms = NO_ALGORITHMS
    """Whose fields may stand at the root beside those that every config has."""

    @cached_property
    def base(self) -> Located:
        """What every variant begins with: `_base`, and over it all that stands at the root and is no section or anchor.

        Whether each key is a field is for the variant's config to say.
        """
        base = Located()
        declared = self.document.get("_base")
        if isinstance(declared, Located):
            base.lay(declared)
        for key, value in self.document.items():
            anchor = key.startswith("_") and not is_field(key)
            if not anchor and key != "defaults" and not is_section(key, value, self.algorithms):
                base.put(key, value, self.document.where.get(key))
        return base

    @cached_property
    def sections(self) -> dict[str, Located]:
        """Every mapping at the root that is no field, anchors included."""
        mappings = {key: value for key, value in self.document.items() if is_section(key, value, self.algorithms)}
        if "algo_id" in self.document and not any(not key.startswith("_") for key in mappings):
            name = str(self.document.get("variant") or self.document["algo_id"])
            mappings[name] = Located(self.document)
        return mappings

    @cached_property
    def variants(self) -> list[str]:
        """Sections that can be trained."""
        return [name for name in self.sections if not name.startswith("_")]

    @cached_property
    def names(self) -> set[str]:
        """Env ids, project ids and the stem, as file stems."""
        found = {self.path.stem}
        for mapping in [self.base, *self.sections.values()]:
            found |= {str(mapping[key]) for key in ("env_id", "project_id") if mapping.get(key)}
        return {file_stem(name) for name in found}

    def variant_for(self, wanted: str) -> str | None:
        """The section that a name asks for: its own name, with the environment's before it, or another spelling."""
        for name in (wanted, algorithm_name(wanted)):
            for variant in self.variants:
                prefixed = any(file_stem(variant) == f"{prefix}_{name}" for prefix in self.names)
                if name in (variant, algorithm_name(variant)) or prefixed:
                    return variant
        return None

    def algorithms_besides(self, variant: str) -> set[str]:
        """Algorithms of all variants but one, as far as they say themselves."""
        common = self.base.get("algo_id")
        others = [name for name in self.variants if variant not in (name, _short(name, self))]
        return {algorithm_name(str(self.sections[name].get("algo_id") or common or name)) for name in others}

    def check_root(self) -> None:
        """A mapping at the root is a field or a section: one that has no field in it is neither, but a misspelt field."""
        for key, value in self.sections.items():
            fields = [inner for inner in value if is_field(inner) or is_field(inner, self.algorithms.fields)]
            if value and not fields and not says_section(key, value, self.algorithms):
                near = near_field(key, [*Config.model_fields, *sorted(self.algorithms.fields)])
                raise ConfigError(
                    f"{self.document.where.get(key, self.path.name)}: unknown key `{key}`: it is no field, and no variant, "
                    f"as nothing in it is a field ({', '.join(value)}). {near}".rstrip()
                )

    def start(self) -> Located:
        """What an algorithm without a variant begins with: the base, or the anchor that names the environment."""
        if self.base.get("env_id"):
            return Located(self.base)
        anchors = [mapping for name, mapping in self.sections.items() if mapping.get("env_id")]
        return Located(self.base).lay(anchors[0]) if anchors else Located(self.base)


@dataclass(frozen=True)
class Section:
    """A section of a file, with all it inherits."""

    fields: Located
    variant: str
    path: Path | None

    @property
    def place(self) -> str:
        """How errors name it."""
        if self.path is None:
            return f"experiment {self.variant}" if self.variant else "experiment"
        return f"{self.path.name}, variant {self.variant}" if self.variant else self.path.name


class Library:
    """All environment files on the search path."""

    def __init__(self, roots: list[Path], notices: list[str], algorithms: Algorithms = NO_ALGORITHMS) -> None:
        self.roots = roots
        self.notices = notices
        self.algorithms = algorithms
        self.read: dict[Path, None] = {}
        """Every file that was read, in order."""
        self.used: dict[Path, None] = {}
        """Those that something was taken from."""
        self._files: dict[Path, EnvironmentFile | None] = {}

    def open(self, path: Path) -> EnvironmentFile:
        """A file by its path."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = EnvironmentFile(path, self._with_spec(path), self.algorithms)
        return known

    def _with_spec(self, path: Path) -> Located:
        """A file, with the description that older trees keep beside it in `<name>.spec.yaml`."""
        self.read[path] = None
        document = read_yaml(path)
        beside = _spec_beside(path)
        if "spec" not in document and beside.is_file():
            self.read[beside] = None
            document.put("spec", read_yaml(beside), Where(beside.name, 1))
        return document

    def take(self, file: EnvironmentFile) -> None:
        """Note that something of a file is used."""
        self.used[file.path] = None
        if _spec_beside(file.path) in self.read:
            self.used[_spec_beside(file.path)] = None

    def _try_open(self, path: Path) -> EnvironmentFile | None:
        """A file that was not asked for by name: if it does not load, that is told and it is passed over."""
        if path not in self._files:
            try:
                self.open(path)
            except ConfigError as error:
                self._files[path] = None
                self.notices.append(f"Passed over: {error}")
        return self._files[path]

    def paths(self, root: Path) -> list[Path]:
        """Environment files of a root: those below `environments/`, or its own when it has no folders of experiments at all."""
        folder = root / "environments"
        if folder.is_dir() or any((root / kind).is_dir() for kind in _KINDS):
            found = sorted(folder.rglob("*.yaml")) + sorted(folder.rglob("*.yml"))
        else:
            found = sorted(path for path in root.glob("*.yaml") if path.name != "metrics.yaml")
        return [path for path in found if not path.stem.endswith(".spec")]

    def files(self) -> Iterator[EnvironmentFile]:
        """Every readable environment file, the strongest root first."""
        for root in self.roots:
            for path in self.paths(root):
                if (file := self._try_open(path)) is not None:
                    yield file

    def matching(self, environment: str) -> Iterator[EnvironmentFile]:
        """Files of an environment; within a root the one that carries its name comes first."""
        for root in self.roots:
            yield from self._matching_in(root, file_stem(environment))

    def _matching_in(self, root: Path, stem: str) -> Iterator[EnvironmentFile]:
        paths = self.paths(root)
        named = [path for path in paths if path.stem == stem]
        for path in named:
            yield self.open(path)
        for path in paths:
            file = None if path in named else self._try_open(path)
            if file is not None and stem in file.names:
                yield file

    def find(self, environment: str, variant: str) -> Section | None:
        """The section `environment:variant`, from environment files or a legacy `hyperparams/<algo>.yaml` of the strongest root."""
        for root in self.roots:
            for file in self._matching_in(root, file_stem(environment)):
                name = file.variant_for(variant)
                if name is not None:
                    variant_name = str(file.document.get("variant") or _short(name, file))
                    return Section(self.section(file, name), variant_name, file.path)
            legacy = self._find_legacy(root, environment, algorithm_name(variant))
            if legacy is not None:
                return legacy
        return None

    def _find_legacy(self, root: Path, environment: str, algorithm: str) -> Section | None:
        for path in sorted((root / "hyperparams").glob("*.yaml")):
            file = self._try_open(path) if algorithm_name(path.stem) == algorithm else None
            for name in file.variants if file else ():
                if file_stem(name) == file_stem(environment):
                    fields = self.section(file, name)  # type: ignore[arg-type]
                    fields = Located({"env_id": name, "project_id": name, "algo_id": algorithm}).lay(fields)
                    return Section(fields, algorithm, path)
        return None

    def section(self, file: EnvironmentFile, name: str) -> Located:
        """A section to be loaded, with all it inherits, once the root of its file is known to be right."""
        file.check_root()
        return self.inherited(file, name)

    def start(self, file: EnvironmentFile) -> Located:
        """What an algorithm without a variant begins with."""
        file.check_root()
        self.take(file)
        return file.start()

    def inherited(self, file: EnvironmentFile, name: str, chain: tuple[str, ...] = ()) -> Located:
        """A section over its parents over the file's base. Of several parents the later ones are stronger."""
        step = f"{file.path.name}:{name}"
        if step in chain:
            raise ConfigError(f"Circular inheritance: {' -> '.join([*chain[chain.index(step) :], step])}.")
        self.take(file)
        own = Located(file.sections[name])
        written = [key for key in file.sections[name].own if own[key] is not None]
        refuse_two_spellings(written, f"{file.path.name}, variant {name}")
        fields = Located(file.base)
        for key in STRUCTURE:
            if key in fields and key not in own:
                raise ConfigError(
                    f"{fields.where.get(key, file.path.name)}: `{key}` at the root of a file is not taken over by its "
                    "variants; write it into each of them."
                )
        for key in ("inherits", "inherit_from"):
            parents = own.pop(key, None) or ()
            for parent in [parents] if isinstance(parents, str) else parents:
                where = own.where.get(key)
                parent_file, parent_name = self._parent(str(parent), file, where, name)
                fields.lay(self.inherited(parent_file, parent_name, (*chain, step)))
            fields.pop(key, None)
        return fields.lay(own)

    def _parent(self, name: str, file: EnvironmentFile, where: Where | None, child: str) -> tuple[EnvironmentFile, str]:
        """A parent by name: in the same file, in files of the same environment, then anywhere."""
        if name in file.sections:
            return file, name
        others = list(self.files())
        for other in sorted(others, key=lambda candidate: candidate.path.stem != file.path.stem):
            if other.path != file.path and name in other.sections:
                return other, name
        known = [section for other in [file, *others] for section in other.sections]
        raise ConfigError(
            f"{where or file.path.name}, variant {child}: inherits {name!r}, which is no section. {did_you_mean(name, known)}"
        )


def _spec_beside(path: Path) -> Path:
    return path.with_suffix(".spec.yaml")


def _short(name: str, file: EnvironmentFile) -> str:
    """A variant's name without the environment's before it."""
    for prefix in sorted(file.names, key=len, reverse=True):
        if file_stem(name).startswith(f"{prefix}_"):
            return name[len(prefix) + 1 :]
    return name
