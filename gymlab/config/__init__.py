"""YAML to config: loading, composing, dialects, schedules, validation, errors that teach."""

from gymlab.config.derive import budget_of
from gymlab.config.dump import FieldDescription, describe_fields, diff, dump, from_dict, to_yaml
from gymlab.config.load import Loaded, load
from gymlab.config.phases import parse_phases

__all__ = [
    "FieldDescription",
    "Loaded",
    "budget_of",
    "describe_fields",
    "diff",
    "dump",
    "from_dict",
    "load",
    "parse_phases",
    "to_yaml",
]
