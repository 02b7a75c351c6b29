"""The base of every config model."""

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """No unknown keys, no changes after construction, no NaN, and a docstring for every field."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        use_attribute_docstrings=True,
        validate_default=True,
        validate_by_name=True,
        validate_by_alias=True,
        allow_inf_nan=False,
    )
