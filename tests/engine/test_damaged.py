"""Damaged or hostile checkpoints: whatever manifest.json, state.json and the weights hold, it is refused in words that name the file and the fix."""

import json
import shutil
from hashlib import sha256

import pytest
import torch
from safetensors.torch import load_file, save_file

import gymlab
from gymlab.engine.agent import load_best
from gymlab.engine.files import read_json
from gymlab.engine.run import Run
from gymlab.engine.saved_episodes import saved_episodes
from gymlab.errors import CheckpointError, GymlabError

SETTINGS = {
    "n_envs": 2,
    "n_steps": 16,
    "batch_size": 32,
    "n_epochs": 1,
    "max_env_steps": 64,
    "eval_freq_epochs": None,
    "eval_episodes": 1,
    "normalize_obs": "rolling",
    "normalize_reward": True,
    "video": False,
    "quiet": True,
}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    return gymlab.train("CartPole-v1:ppo", runs_dir=tmp_path_factory.mktemp("runs"), run_id="one", **SETTINGS)


@pytest.fixture
def checkpoint(finished, tmp_path):
    """The one checkpoint of a copy of the run."""
    shutil.copytree(finished.dir, tmp_path / "one", symlinks=True)
    (only,) = Run(tmp_path / "one").checkpoints.all()
    return only


def load(checkpoint):
    return gymlab.load("one", runs_dir=checkpoint.path.parents[2])


def resume(checkpoint):
    return gymlab.resume("one", runs_dir=checkpoint.path.parents[2], max_env_steps=96)


def rewrite(checkpoint, name, content):
    """Change a file of a checkpoint together with its checksum: damage that no checksum tells."""
    (checkpoint.path / name).write_bytes(content)
    path = checkpoint.path / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["files"][name] = {"size": len(content), "sha256": sha256(content).hexdigest()}
    path.write_text(json.dumps(manifest))


def change_state(checkpoint, change):
    state = json.loads((checkpoint.path / "state.json").read_text())
    change(state)
    rewrite(checkpoint, "state.json", json.dumps(state).encode())


NOT_JSON = {
    "empty": b"",
    "cut": b'{"files": {',
    "binary": b"\xff\xfe\x00\x01",
    "a list": b"[]",
    "null": b"null",
    "a number": b"3",
    "text": b'"text"',
    "nested too deep": b"[" * 100_000,
    "a number of 5000 digits": b'{"files": ' + b"9" * 5000 + b"}",
    "NaN": b'{"files": NaN}',
}


@pytest.mark.parametrize("content", NOT_JSON.values(), ids=NOT_JSON)
@pytest.mark.parametrize("name", ["manifest.json", "state.json"])
def test_what_is_no_object_of_json(checkpoint, name, content):
    if name == "manifest.json":
        (checkpoint.path / name).write_bytes(content)
    else:
        rewrite(checkpoint, name, content)
    for use in (load, resume):
        with pytest.raises(CheckpointError, match=rf"{name} is .*(Use|use) an"):
            use(checkpoint)


WHOLE = {"size": 1, "sha256": "0" * 64}
MANIFESTS = {
    "no files at all": ({}, "does not list model.safetensors, state.json"),
    "no file": ({"files": {}}, "does not list model.safetensors, state.json"),
    "files in a list": ({"files": ["model.safetensors"]}, "'files' is a list"),
    "a file that is null": ({"files": {"model.safetensors": None}}, "'model.safetensors' in 'files' has no size"),
    "a file without size": ({"files": {"a": {"sha256": "x"}}}, "'a' in 'files' has no size"),
    "a size in words": ({"files": {"a": {**WHOLE, "size": "1"}}}, "'a' in 'files' has no size"),
    "a size that is true": ({"files": {"a": {**WHOLE, "size": True}}}, "'a' in 'files' has no size"),
    "a size below zero": ({"files": {"a": {**WHOLE, "size": -1}}}, "'a' in 'files' has no size"),
    "a size with a fraction": ({"files": {"a": {**WHOLE, "size": 1.5}}}, "'a' in 'files' has no size"),
    "a checksum that is a number": ({"files": {"a": {**WHOLE, "sha256": 3}}}, "'a' in 'files' has no size and sha256"),
    "a name that leads out": ({"files": {"../../run.json": WHOLE}}, "run.json is missing"),
    "an empty name": ({"files": {"": WHOLE}}, "is missing"),
    "a name that is too long": ({"files": {"a" * 5000: WHOLE}}, "cannot be read|is missing"),
    "a name with a zero byte": ({"files": {"a\0b": WHOLE}}, "is missing"),
    "a directory": ({"files": {".": WHOLE}}, "is missing"),
    "chunks in a list": ({"files": {}, "chunks": []}, "'chunks' is a list"),
    "a chunk without size": ({"files": {}, "chunks": {"a": {}}}, "'a' in 'chunks' has no size"),
}


@pytest.mark.parametrize(("manifest", "message"), MANIFESTS.values(), ids=MANIFESTS)
def test_a_manifest_that_does_not_list_what_a_checkpoint_is(checkpoint, manifest, message):
    (checkpoint.path / "manifest.json").write_text(json.dumps(manifest))
    for use in (load, resume):
        with pytest.raises(CheckpointError, match=message):
            use(checkpoint)


@pytest.mark.parametrize("name", ["model.safetensors", "state.json"])
def test_a_manifest_without_a_file_that_is_needed(checkpoint, name):
    path = checkpoint.path / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["files"][name]
    path.write_text(json.dumps(manifest))
    for use in (load, resume):
        with pytest.raises(CheckpointError, match=rf"is damaged: manifest\.json does not list {name}"):
            use(checkpoint)
    with pytest.raises(CheckpointError, match=f"does not list {name}"):
        checkpoint.read_model() if name == "model.safetensors" else checkpoint.read_state()


def test_a_file_that_the_manifest_does_not_list_is_not_read(checkpoint):
    path = checkpoint.path / "manifest.json"
    manifest = json.loads(path.read_text())
    for name in ("optimizer.safetensors", "metrics.json"):
        del manifest["files"][name]
    path.write_text(json.dumps(manifest))
    (checkpoint.path / "video.mp4").write_bytes(b"any")
    assert checkpoint.video is None
    with pytest.raises(CheckpointError, match=r"'optimizer' of .* cannot be understood"):
        checkpoint.read_part("optimizer")
    with pytest.raises(CheckpointError, match=r"does not list metrics\.json"):
        checkpoint.metrics()


STATE = (
    "parts",
    "counters",
    "phase",
    "hyperparameters",
    "statistics",
    "callbacks",
    "pending_metrics",
    "observation_space",
    "raw_observation_space",
    "action_space",
    "best_score",
    "seconds",
    "cpu_seconds",
    "epoch_began",
    "epoch_ending",
    "format_version",
)
NOT_NEEDED = ("callbacks", "cpu_seconds", "epoch_ending", "format_version")
"""Checkpoints of earlier releases do not have them."""
AGENTS = ("parts", "hyperparameters", "observation_space", "raw_observation_space", "action_space")
"""What an agent is made of; a resumed run has its spaces from its environment."""
WRONG = {"a list": [1], "text": "text", "an infinite number": 1e400}


@pytest.mark.parametrize("key", STATE)
def test_a_state_that_lacks_something_or_has_it_of_another_kind(checkpoint, key):
    original = (checkpoint.path / "state.json").read_bytes()
    for value in WRONG.values():
        change_state(checkpoint, lambda state, value=value: state.update({key: value}))
        content = (checkpoint.path / "state.json").read_bytes().replace(b"Infinity", b"1e400")
        rewrite(checkpoint, "state.json", content)
        for use in (load, resume):
            message = (
                rf"state\.json is (damaged: {key} is|not valid JSON \(1e400 is larger).* [Uu]se an earlier checkpoint"
            )
            with pytest.raises(CheckpointError, match=message):
                use(checkpoint)
    rewrite(checkpoint, "state.json", original)
    change_state(checkpoint, lambda state: state.pop(key))
    if key in AGENTS:
        with pytest.raises(CheckpointError, match=rf"state\.json is damaged: it has no {key}"):
            load(checkpoint)
    if key in NOT_NEEDED or "space" in key:
        assert resume(checkpoint).status == "finished"
    else:
        with pytest.raises(CheckpointError, match=rf"state\.json is damaged: it has no {key}"):
            resume(checkpoint)


def rules_of(state):
    return state["callbacks"]["Alerts"]["watch"]["rules"]


INSIDE = {
    "a counter is missing": lambda state: state["counters"].pop("env_steps"),
    "a counter is unknown": lambda state: state["counters"].update(loops=1),
    "a counter is text": lambda state: state["counters"].update(env_steps="64"),
    "a counter has a fraction": lambda state: state["counters"].update(env_steps=64.5),
    "a counter is below zero": lambda state: state["counters"].update(env_steps=-1),
    "a counter is huge": lambda state: state["counters"].update(env_steps=2**63),
    "a counter is no number of this world": lambda state: state["counters"].update(updates=10**400),
    "a phase without index": lambda state: state["phase"].pop("phase_index"),
    "statistics without returns": lambda state: state["statistics"].pop("returns"),
    "pending metrics in a list": lambda state: state["pending_metrics"].update(mean=[1]),
    "a change of no hyperparameter": lambda state: state["hyperparameters"].update(
        changes=[{"name": "_take", "to": 1}]
    ),
    "changes that are a number": lambda state: state["hyperparameters"].update(changes=3),
    "a callback's state is text": lambda state: state["callbacks"].update(Alerts="text"),
    "a return is text": lambda state: state["statistics"].update(returns=["x"]),
    "a pending metric is text": lambda state: state["pending_metrics"].update(last={"a": "x"}),
    "a point of an alert is text": lambda state: rules_of(state)["Bounds"]["points"].update(
        {"train/roll/ep_len/mean": ["x"]}
    ),
    "a bound metric is outside for so many words": lambda state: rules_of(state)["Bounds"].update(outside={"a": "x"}),
    "an entropy is a list": lambda state: rules_of(state)["EntropyCollapse"].update(newest=[[1]]),
    "a best return is text": lambda state: state["callbacks"]["Alerts"]["watch"]["returns"].update(best="x"),
    "optimizer is a list": lambda state: state["parts"].update(optimizer=[]),
    "an optimizer that is not there": lambda state: state["parts"]["optimizer"].update(other={}),
    "an optimizer's state is text": lambda state: state["parts"].update(
        optimizer=dict.fromkeys(state["parts"]["optimizer"], "x")
    ),
    "a tensor that is not there": lambda state: state["parts"].update(rng={"torch": {"$tensor": "gone"}}),
    "a float that is none": lambda state: state["parts"].update(rng={"torch": {"$float": "x"}}),
    "a dict of triples": lambda state: state["parts"].update(rng={"$dict": [[1, 2, 3]]}),
    "a dict with a list as key": lambda state: state["parts"].update(rng={"$dict": [[[1], 2]]}),
    "a tuple that is a number": lambda state: state["parts"].update(rng={"$tuple": 3}),
    "no randomness": lambda state: state["parts"].pop("rng"),
    "randomness of another kind": lambda state: state["parts"].update(rng={"torch": 1, "numpy": 2, "python": 3}),
    "no environments": lambda state: state["parts"].pop("envs"),
    "environments in a list": lambda state: state["parts"].update(envs=[1, 2]),
    "environments of another kind": lambda state: state["parts"].update(envs={"train": {"lengths": [1, 2]}}),
    "a buffer that is not there": lambda state: state["parts"].update(buffers={"other": {}}),
    "buffers that are text": lambda state: state["parts"].update(buffers="text"),
    "a workflow's state is text": lambda state: state["parts"].update(workflow="text"),
    "a controller that is not there": lambda state: state["parts"].update(controllers={"other": {}}),
}


@pytest.mark.parametrize("change", INSIDE.values(), ids=INSIDE)
def test_a_run_does_not_go_on_from_a_state_that_is_none(checkpoint, change):
    change_state(checkpoint, change)
    with pytest.raises(GymlabError, match=r"epoch=0002\.ckpt|other") as caught:
        resume(checkpoint)
    assert "earlier checkpoint" in str(caught.value) or "other" in str(caught.value)


SPACES = {
    "no type": {},
    "an unknown type": {"type": "Graph"},
    "a box without bounds": {"type": "Box", "shape": [4], "dtype": "float32"},
    "a box of text": {"type": "Box", "shape": "abc", "dtype": "float32", "low": 0, "high": 1},
    "a box of no type": {"type": "Box", "shape": [4], "dtype": "float3", "low": 0, "high": 1},
    "bounds that do not fit": {"type": "Box", "shape": [4], "dtype": "float32", "low": [0, 1], "high": 1},
    "no choice": {"type": "Discrete", "n": 0, "start": 0},
    "a number of choices in words": {"type": "Discrete", "n": "two", "start": 0},
    "parts that are none": {"type": "Dict", "spaces": [1]},
}


@pytest.mark.parametrize("space", SPACES.values(), ids=SPACES)
def test_a_space_that_is_none(checkpoint, space):
    change_state(checkpoint, lambda state: state.update(observation_space=space))
    with pytest.raises(GymlabError, match=r"state\.json cannot be understood|unknown type|not fit"):
        load(checkpoint)


def change_model(checkpoint, change):
    """Rewrite the weights; gives back the names of all parameters and of all buffers of statistics."""
    path = checkpoint.path / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)
    rewrite(checkpoint, path.name, path.read_bytes())


def weight_of(tensors):
    return next(name for name, tensor in tensors.items() if tensor.ndim == 2)


def as_int(tensors):
    tensors[weight_of(tensors)] = tensors[weight_of(tensors)].int()


def as_bool(tensors):
    tensors[weight_of(tensors)] = tensors[weight_of(tensors)] > 0


def with_value(value, count):
    def change(tensors):
        tensors[weight_of(tensors)].view(-1)[:count] = value

    return change


def all_nan(tensors):
    for tensor in tensors.values():
        if tensor.is_floating_point():
            tensor.fill_(float("nan"))


def nan_statistics(tensors):
    (name,) = (name for name in tensors if name.endswith("mean"))
    tensors[name].fill_(float("nan"))


WEIGHTS = {
    "whole numbers": (as_int, r"does not fit this agent: \S+weight holds int32, expected float32"),
    "truth values": (as_bool, r"does not fit this agent: \S+weight holds bool, expected float32"),
    "one NaN": (with_value(float("nan"), 1), r"is of no use: 1 of \d+ values of \S+weight are NaN or infinite"),
    "two infinite": (with_value(float("inf"), 2), r"is of no use: 2 of \d+ values of \S+weight are NaN or infinite"),
    "all NaN": (all_nan, r"is of no use: (\d+) of \1 values of \S+ are NaN"),
    "NaN in statistics": (nan_statistics, r"is of no use: 4 of 4 values of \S+mean are NaN"),
}


@pytest.mark.parametrize(("change", "message"), WEIGHTS.values(), ids=WEIGHTS)
def test_weights_that_are_none(checkpoint, change, message):
    change_model(checkpoint, change)
    for use in (load, resume):
        with pytest.raises(CheckpointError, match=message):
            use(checkpoint)
    with pytest.raises(CheckpointError, match=message):
        gymlab.train(
            "CartPole-v1:ppo", runs_dir=checkpoint.path.parents[2], run_id="two", **SETTINGS, init_from_run="one"
        )


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_weights_of_another_precision_are_taken(checkpoint, dtype):
    change_model(
        checkpoint,
        lambda tensors: tensors.update({n: t.to(dtype) for n, t in tensors.items() if t.dtype == torch.float32}),
    )
    agent = load(checkpoint)
    assert {p.dtype for module in agent.workflow.modules.values() for p in module.parameters()} == {torch.float32}
    assert agent.act([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_an_infinite_constant_beside_the_parameters_is_none_of_our_business(checkpoint):
    def change(tensors):
        (name,) = (name for name in tensors if name.endswith("variance"))
        tensors[name].fill_(float("inf"))

    change_model(checkpoint, change)
    load(checkpoint)


def change_optimizer(checkpoint, change):
    tensors = load_file(checkpoint.path / "optimizer.safetensors")
    (prefix,) = {name.rpartition("/")[0] for name in tensors}
    change(tensors, prefix)
    save_file(tensors, checkpoint.path / "optimizer.safetensors")
    rewrite(checkpoint, "optimizer.safetensors", (checkpoint.path / "optimizer.safetensors").read_bytes())


MOMENTS = {
    "too short": lambda tensors, prefix: tensors.update({f"{prefix}/exp_avg": torch.zeros(2)}),
    "one number": lambda tensors, prefix: tensors.update({f"{prefix}/exp_avg_sq": torch.zeros(())}),
    "too long": lambda tensors, prefix: tensors.update({f"{prefix}/exp_avg_sq": torch.zeros(100_000)}),
    "many counters": lambda tensors, prefix: tensors.update({f"{prefix}/step": torch.zeros(3)}),
}


@pytest.mark.parametrize("change", MOMENTS.values(), ids=MOMENTS)
def test_moments_of_another_shape_are_refused_before_a_kernel_reads_beyond_them(checkpoint, change):
    change_optimizer(checkpoint, change)
    with pytest.raises(CheckpointError, match=r"The part 'optimizer' of .*has the shape|step is .*, no number"):
        resume(checkpoint)


def settings_of(state):
    (optimizer,) = state["parts"]["optimizer"].values()
    return optimizer["param_groups"][0]


def moments_of(state):
    (optimizer,) = state["parts"]["optimizer"].values()
    ((_, moments),) = optimizer["state"]["$dict"]
    return moments


SETTINGS_OF_ADAM = {
    "text for a number": (lambda state: settings_of(state).update(eps="1e-5"), "eps is 1e-5, not like"),
    "no number": (lambda state: settings_of(state).update(lr={"$float": "nan"}), "lr is nan, not like"),
    "a setting is missing": (lambda state: settings_of(state).pop("betas"), "betas"),
    "more numbers": (lambda state: settings_of(state).update(betas=[0.9, 0.9, 0.9]), "betas is"),
    "a moment is text": (lambda state: moments_of(state).update(exp_avg="x"), "exp_avg is no tensor"),
    "a moment is missing": (lambda state: moments_of(state).pop("exp_avg_sq"), "exp_avg_sq"),
}


@pytest.mark.parametrize(("change", "message"), SETTINGS_OF_ADAM.values(), ids=SETTINGS_OF_ADAM)
def test_an_optimizer_that_is_none(checkpoint, change, message):
    change_state(checkpoint, change)
    with pytest.raises(CheckpointError, match=rf"The part 'optimizer' of .*{message}"):
        resume(checkpoint)


@pytest.mark.parametrize("position", [-5, 625, 10**6])
def test_a_generator_that_would_read_beyond_its_numbers_is_refused(checkpoint, position):
    change_state(checkpoint, lambda state: state["parts"]["rng"]["numpy"]["$tuple"].__setitem__(2, position))
    with pytest.raises(CheckpointError, match=r"The part 'rng' of .*position"):
        resume(checkpoint)


def test_a_number_that_is_none_is_not_read(tmp_path):
    """Python would take it for infinity, and could not write it to JSON again."""
    for number in ("1e400", "-1e400", "NaN", "Infinity"):
        (tmp_path / "a.json").write_text(f'{{"a": [{number}]}}')
        with pytest.raises(CheckpointError, match=r"a\.json is not valid JSON"):
            read_json(tmp_path / "a.json")


@pytest.fixture
def dreamer(dreaming_runs, tmp_path):
    """The newest checkpoint of a copy of a Dreamer's run."""
    shutil.copytree(dreaming_runs / "dreamer", tmp_path / "dreamer", symlinks=True)
    return Run(tmp_path / "dreamer").checkpoints.find()


def replay_of(state):
    return state["parts"]["buffers"]["replay"]


def stream_of(state):
    return replay_of(state)["streams"][0]


def array_of(*path):
    return lambda state: stream_of(state)["newest"]["records"].update({path[0]: path[1]})


REPLAYS = {
    "no layout": lambda state: replay_of(state).pop("layout"),
    "a layout that is text": lambda state: replay_of(state).update(layout="text"),
    "no fields": lambda state: replay_of(state)["layout"].update(fields={}),
    "fields in a list": lambda state: replay_of(state)["layout"].update(fields=[1]),
    "a field without a type": lambda state: replay_of(state)["layout"]["fields"].update(reward=[[]]),
    "a field of no type": lambda state: replay_of(state)["layout"]["fields"].update(reward=[[], "float3"]),
    "a field of another shape": lambda state: replay_of(state)["layout"]["fields"].update(reward=[[3], "float32"]),
    "chunks without records": lambda state: replay_of(state)["layout"].update(chunk=0),
    "chunks in words": lambda state: replay_of(state)["layout"].update(chunk="x"),
    "streams that are a number": lambda state: replay_of(state).update(streams=3),
    "a stream that is text": lambda state: replay_of(state).update(streams=["x"]),
    "no count": lambda state: stream_of(state).pop("written"),
    "more records than any list holds": lambda state: stream_of(state).update(written=10**15),
    "more records than any number": lambda state: stream_of(state).update(written=10**70),
    "records below zero": lambda state: stream_of(state).update(oldest=-5),
    "a newest chunk that is text": lambda state: stream_of(state).update(newest="text"),
    "no newest records": lambda state: stream_of(state)["newest"].pop("records"),
    "records that are text": array_of("reward", "text"),
    "records of another field": array_of("reward", {"$array": "buffers/replay/streams/0/newest/records/action"}),
    "a field is missing": lambda state: stream_of(state)["newest"]["records"].pop("is_first"),
}


@pytest.mark.parametrize("change", REPLAYS.values(), ids=REPLAYS)
def test_a_replay_that_is_none(dreamer, change, caplog):
    """`play -e` lists its episodes, and a resumed run learns from it."""
    change_state(dreamer, change)
    run, agent = load_best("dreamer", runs_dir=dreamer.path.parents[2])
    assert saved_episodes(run, agent), "those of the checkpoint before it are taken"
    said = [record.getMessage() for record in caplog.records if "The part 'buffers' of" in record.getMessage()]
    assert len(said) == 1
    assert f"{dreamer.name} cannot be" in said[0]
    for other in run.checkpoints.all()[:-1]:
        shutil.rmtree(other.path)
    with pytest.raises(CheckpointError, match=rf"The part 'buffers' of \S+{dreamer.name} cannot be"):
        saved_episodes(run, agent)
    with pytest.raises(CheckpointError, match=rf"The part 'buffers' of \S+{dreamer.name} .*Use an earlier checkpoint"):
        gymlab.resume("dreamer", runs_dir=dreamer.path.parents[2], max_env_steps=136)


def of_laprop(state):
    return state["parts"]["optimizer"]["all"]


def memory_of(state):
    return state["parts"]["workflow"]["memory"]


def betas(*values):
    return lambda state: of_laprop(state)["param_groups"][0].update(betas={"$tuple": list(values)})


def first_moments(state):
    return of_laprop(state)["state"]["$dict"][0][1]


def collector_of(state):
    return state["parts"]["workflow"]["collector"]


LEARNERS = {
    "a huge beta": (betas(0.9, 1e300), r"betas are \(0\.9, 1e\+300\)"),
    "a beta of one": (betas(1.0, 0.999), "betas are"),
    "a beta below zero": (betas(-1e200, 0.999), "betas are"),
    "a step before the first": (lambda state: first_moments(state).update(step=-1), "step is -1"),
    "an infinite step": (lambda state: first_moments(state).update(step={"$float": "inf"}), "step is inf"),
    "no step": (lambda state: first_moments(state).pop("step"), "step"),
    "no moment": (lambda state: first_moments(state).pop("first"), "first"),
    "a memory of another shape": (
        lambda state: memory_of(state).update(deter=memory_of(state)["action"]),
        r"deter is \(2, 2\) torch.float32, not \(2, 16\)",
    ),
    "a memory that is a number": (lambda state: memory_of(state).update(stoch=3), r"stoch is \(\) torch.int64"),
    "a memory that is text": (lambda state: memory_of(state).update(stoch="text"), "cannot be understood"),
    "a memory that is NaN": (
        lambda state: memory_of(state).update(stoch=[[{"$float": "nan"}] * 16] * 2),
        "stoch has values that are NaN",
    ),
    "rewards of other environments": (lambda state: collector_of(state).update(reward=[0.0]), r"reward is \(1,\)"),
    "updates in words": (lambda state: state["parts"]["workflow"].update(updates="many"), "many"),
}


@pytest.mark.parametrize(("change", "message"), LEARNERS.values(), ids=LEARNERS)
def test_a_world_model_does_not_go_on_from_a_state_that_is_none(dreamer, change, message):
    change_state(dreamer, change)
    with pytest.raises(
        CheckpointError, match=rf"The part '(optimizer|workflow)' of \S+{dreamer.name} .*{message}"
    ) as caught:
        gymlab.resume("dreamer", runs_dir=dreamer.path.parents[2], max_env_steps=136)
    assert "Use an earlier checkpoint" in str(caught.value)
