"""What no one reads is refused by name, and a learning rate has one place."""

import re

import pytest

from gymlab.config.reads import Reads
from gymlab.errors import ConfigError

READS = Reads(
    optimizers={"policy": "policy_lr"},
    components=("encoder", "returns"),
    buffers=("replay",),
    phase_options={"actions": ("random", "policy")},
)
OPTIMIZER = "{_target_: torch.optim.SGD, _partial_: true, lr: 0.5}"
PART = "{_target_: identity, size: 4}"


@pytest.fixture
def load_reading(load_variant):
    """Load a variant of an algorithm that reads `READS`."""
    return lambda fields, *overrides, **options: load_variant(
        fields, *overrides, **{"reads_of": lambda _: READS, **options}
    )


@pytest.mark.parametrize(
    ("override", "words"),
    [
        (
            f"components.encodr={PART}",
            r"`components.encodr`.*Did you mean 'encoder'.*under components: encoder, returns",
        ),
        ("components.nonsense=3", r"`components.nonsense`: ppo reads nothing of that name"),
        (f"optimizers.actor={OPTIMIZER}", r"`optimizers.actor`.*under optimizers: policy"),
        (f"controllers.planner={PART}", r"`controllers.planner`.*under controllers: none"),
        ("buffers.replai={_target_: identity}", r"`buffers.replai`.*Did you mean 'replay'"),
    ],
)
def test_a_part_that_nothing_reads_is_refused(load_reading, override, words):
    with pytest.raises(ConfigError, match=rf"command line.*{words}" if "components" in words else words):
        load_reading("seed: 1", override)


@pytest.mark.parametrize(
    ("choice", "words"),
    [
        (
            "controller=cem_planner",
            "no config group controller/ to take it from, and ppo reads nothing under controllers.",
        ),
        ("buffer=disk_buffer", "no config group buffer/ to take it from, write buffers.replay={_target_: ...}."),
    ],
)
def test_a_choice_without_its_group_is_told_what_the_algorithm_reads(load_reading, choice, words):
    with pytest.raises(ConfigError, match=re.escape(f"`{choice}`: there is {words}")):
        load_reading("seed: 1", choice)


def test_a_file_is_named_with_its_line(load_reading):
    with pytest.raises(ConfigError, match=r"CartPole-v1.yaml:4.*`components.encodr`"):
        load_reading(f"components: {{encodr: {PART}}}")


def test_what_is_read_is_taken_and_null_is_not_set(load_reading):
    config = load_reading(f"components: {{encoder: {PART}, decoder: null}}\noptimizers: {{actor: null}}")
    assert config.components == {"encoder": {"_target_": "identity", "size": 4}}
    assert config.optimizers == {}


def test_a_buffer_that_a_phase_names_is_read(load_reading):
    phase = "{name: p, type: online, hooks: [{name: collect, buffer: mine}]}"
    config = load_reading(f"buffers: {{mine: {{_target_: identity, size: 1}}}}\ntraining: {{phases: [{phase}]}}")
    assert set(config.buffers) == {"mine"}


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("duration_step: 5", "unknown key `duration_step`. Did you mean 'duration_steps'"),
        ("duration: 5", "unknown key `duration`. Did you mean 'duration_"),
        ("colect_length: 5", "unknown key `colect_length`. Of its own ppo reads: actions"),
        ("controller: planner", "unknown key `controller`"),
        ("imagination_horizon: 15", "unknown key `imagination_horizon`"),
        ("options: {acts: random}", "unknown key `acts`"),
        ("actions: randm", "`actions` is 'randm'. Did you mean 'random'"),
    ],
)
def test_a_key_of_a_phase_that_no_hook_looks_at_is_refused(load_reading, key, words):
    with pytest.raises(ConfigError, match=rf"CartPole-v1.yaml:4.*training.phases, phase 'warm': {words}"):
        load_reading(f"training: {{phases: [{{name: warm, type: online, {key}}}]}}")


def test_a_key_of_a_phase_that_is_read_is_taken(load_reading):
    phase = load_reading("training: {phases: [{type: online, duration_steps: 5, actions: random}]}").training.phases[0]
    assert (phase.options, phase.duration_steps) == ({"actions": "random"}, 5)


def test_a_config_begins_a_run_and_goes_on_with_none(load_reading):
    for path in ("nothing.pt", "runs/some"):
        with pytest.raises(ConfigError, match=rf"`training.resume_path`.*gymlab train --resume {path}"):
            load_reading("seed: 1", f"training.resume_path={path}")
    assert load_reading("training: {resume_path: null}").training.resume_path is None


SGD = f"optimizers: {{policy: {OPTIMIZER}}}"
FALLING = {"start": 0.1, "end": 0.01, "from": 0.0, "to": 5000.0, "schedule": "linear", "warmup": 0.0}


@pytest.mark.parametrize(
    ("fields", "overrides", "rate"),
    [
        (SGD, [], 0.5),
        # Later layers win: in a node or by the field.
        ("policy_lr: 0.1", [f"optimizers.policy={OPTIMIZER}"], 0.5),
        ("policy_lr: 0.1", ["+optimizers.policy.lr=0.2"], 0.2),
        (SGD, ["policy_lr=0.3"], 0.3),
        (f"policy_lr: 0.5\n{SGD}", [], 0.5),
        # Where a schedule stands below, the rate is where it starts.
        (f"policy_lr: {FALLING}", [f"optimizers.policy={OPTIMIZER}"], {**FALLING, "start": 0.5}),
        ("optimizers: {policy: {_target_: torch.optim.SGD, _partial_: true, lr: lin_0.4}}", ["max_env_steps=100"], 0.4),
    ],
)
def test_the_rate_of_an_optimizer_is_the_fields(load_reading, fields, overrides, rate):
    config = load_reading(fields, *overrides)
    found = config.policy_lr
    if isinstance(rate, dict):
        found = found.model_dump(by_alias=True)
    assert (getattr(found, "start", found)) == rate
    assert "lr" not in config.optimizers["policy"]


@pytest.mark.parametrize("overrides", [[], ["policy_lr=0.1", f"optimizers.policy={OPTIMIZER}"]])
def test_two_rates_of_one_optimizer_are_refused(load_reading, overrides):
    fields = "seed: 1" if overrides else f"policy_lr: 0.1\n{SGD}"
    with pytest.raises(ConfigError, match=r"`optimizers.policy.lr` is 0.5 and `policy_lr` is 0.1.*Keep `policy_lr`"):
        load_reading(fields, *overrides)


def test_without_declarations_nothing_is_refused(load_variant):
    """As for the config of a run from before: what it names had no effect then either."""
    config = load_variant(f"components: {{nonsense: 3}}\npolicy_lr: 0.1\n{SGD}")
    assert (config.components, config.policy_lr) == ({"nonsense": 3}, 0.1)


@pytest.mark.parametrize(
    ("value", "works"),
    [("475", True), ("-100.5", True), ("null", True), ("foo", False), ("true", False), ("[475]", False)],
)
def test_the_threshold_of_a_spec_is_a_number(load_variant, value, works):
    if works:
        assert load_variant("seed: 1", f"spec.returns.threshold_solved={value}").solved_threshold == (
            None if value == "null" else float(value)
        )
    else:
        with pytest.raises(ConfigError, match=r"`spec.returns`: `threshold_solved` expects a number or null, got"):
            load_variant("seed: 1", f"spec.returns.threshold_solved={value}")
