"""YAML to config: loading, composing, dialects, schedules, validation, errors that teach."""

from gymlab.config.derive import budget_of
from gymlab.config.dimensions import bind_dimensions
from gymlab.config.discover import ExperimentEntry, VariantEntry, composed_experiments, discover
from gymlab.config.dump import FieldDescription, describe_fields, diff, dump, from_dict, to_yaml
from gymlab.config.load import Loaded, load
from gymlab.config.phases import parse_phases

__all__ = [
    "ExperimentEntry",
    "FieldDescription",
    "Loaded",
    "VariantEntry",
    "bind_dimensions",
    "budget_of",
    "composed_experiments",
    "describe_fields",
    "diff",
    "discover",
    "dump",
    "from_dict",
    "load",
    "parse_phases",
    "to_yaml",
]
