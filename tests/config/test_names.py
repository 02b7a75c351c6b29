"""Which field an unknown key may have meant."""

import pytest

from gymlab.config.names import near_field

FIELDS = ["n_steps", "n_epochs", "max_env_steps", "init_parts", "policy_lr", "value_lr", "seed"]


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        ("n_step", "Did you mean 'n_steps' or 'max_env_steps'?"),
        ("sead", "Did you mean 'seed'?"),
        ("frameskipp", "Did you mean 'frameskip'?"),
        ("lr", "Did you mean 'policy_lr' or 'value_lr'?"),
        ("init_modules", "Did you mean 'init_parts'?"),
        ("quux", ""),
    ],
)
def test_fields_come_before_older_names(key, sentence):
    assert near_field(key, FIELDS) == sentence
