"""World Models (Ha & Schmidhuber 2018): see with V, remember and expect with M, act with a tiny C.

    collect             random actions that are alike for a while; every observation becomes a record
    update_vision       V: pictures as short codes                        L = sum (x - y)^2 + max(KL, floor)
    collect_codes       the codes of all records; those of first observations are where dreams begin
    update_world_model  M: what comes after (z, a)                        L = -log p(z') + reward + end
    collect_returns     each controller of a generation plays in the environment
    update_controller   C: CMA-ES is told the returns (or has the generation dream first); now and then the best is judged again

    x[t] -V-> z[t]                    a[t] = C(z[t], h[t])        C acts on the memory of what came before,
              h[t] -M(z[t], a[t])-> h[t+1] -> p(z[t+1])           then M takes in what was seen and done

V never sees rewards, and M never sees C: what is hard is learned from data without a goal, and what has a goal is small enough to evolve. The stages are
phases (components/world_models_config.py), and a YAML may name others.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from gymlab.buffers.batches import SequenceBatch
from gymlab.buffers.chunk_files import Field
from gymlab.buffers.consecutive import ConsecutiveWindows, EpisodeTable, SingleRecords
from gymlab.buffers.record_replay import RecordReplay
from gymlab.buffers.sequence_collector import SequenceCollector, record_fields
from gymlab.components.code_dreams import CodeDreams
from gymlab.components.dream_trials import dream_returns
from gymlab.components.dreaming import HELD_OUT_ROWS, HORIZONS, HeldOut, ShowsDreams
from gymlab.components.evolution import Elite, Evolution, Trial, draw_generations
from gymlab.components.flat import count_parameters
from gymlab.components.linear_controllers import LinearControllers, action_map
from gymlab.components.mdn_rnn import MDNRNN, Asleep, Hidden
from gymlab.components.observation_parts import ObservationParts
from gymlab.components.optimizers import descend
from gymlab.components.vae import ConvVAE, Vision
from gymlab.components.world_models_config import CODE, PICTURES, READS, REPLAY, SEQUENCES, WorldModelsConfig
from gymlab.config.schema import Config
from gymlab.engine.workflow import (
    CollectResult,
    Dream,
    DreamStep,
    PhaseView,
    Recording,
    UpdateResult,
    Workflow,
    register_workflow,
)
from gymlab.envs.step import Episode
from gymlab.errors import ConfigError

ENCODED_AT_ONCE = 512
MOST_STARTS = 1024
"""First observations that dreams begin at: the newest ones."""
SHOWN_TEMPERATURES = (0.5, 1.0, 1.5)
"""Of the dreams that people look at beside the likeliest one."""
GENERATION, ELITE = "generation", "elite"
"""What a trial is for."""


class Memory(NamedTuple):
    """What the agent remembers of N environments."""

    hidden: Hidden
    begins: Tensor
    """[N] bool; the next observation is an episode's first."""


@register_workflow("world_models")
class WorldModels(ShowsDreams, Workflow):
    """The algorithm, hook by hook."""

    Config: ClassVar[type[Config]] = WorldModelsConfig
    reads = READS
    one_process: ClassVar[bool] = True
    stepless_hooks: ClassVar[tuple[str, ...]] = ("collect_codes",)
    config: WorldModelsConfig
    hyperparameters: Any

    @property
    def phases(self) -> tuple[dict[str, Any], ...]:  # type: ignore[override]
        """Collect, V, codes, M, C; as often as there are rounds."""
        return self.config.curriculum(sees_pictures=self.vision.is_picture)

    def initialize(self) -> None:
        """V, M and the elite C; with an environment also optimisers, replay and evolution."""
        context, config = self.context, self.config
        self.parts = ObservationParts(context.observation_space, context.raw_observation_space)
        self.actions = action_map(
            context.action_space, config.action_map, config.threshold_actions, config.action_hold, config.action_drift
        )
        self.vision = Vision(self.parts.shapes, config.latent_size).to(context.device)
        self.model = MDNRNN(
            self.vision.size,
            self.actions.size,
            config.hidden,
            config.mixtures,
            config.mixture,
            predicts_reward=config.predict_reward,
            predicts_end=config.predict_end,
            sees_start=config.sees_start,
        ).to(context.device)
        self.dreams = CodeDreams(self.vision, self.model, self.parts, self.actions)
        features = self.vision.size + config.hidden * ("z", "z_h", "z_h_c").index(config.controller_sees)
        self.controllers = LinearControllers(features, self.actions.outputs, config.controller_bias)
        self.elite = Elite(self.controllers.size).to(context.device)
        self.modules = {"vision": self.vision, "model": self.model, "elite": self.elite}
        names = ("act", "collect", "evolve", PICTURES, SEQUENCES)
        self.generators = {name: context.seeds.child("world_models", name).generator() for name in names}
        if context.train_environment is not None:
            self._prepare_training()

    def _prepare_training(self) -> None:
        config, environment = self.config, self.context.train_environment
        # What M is compared with. Networks begin with the run's seed, so that it is the same after a resume.
        self.untrained = copy.deepcopy(self.model)
        self.optimizers = {"model": torch.optim.Adam(self.model.parameters(), self.hyperparameters.model_lr)}
        latents = {}
        if self.vision.is_picture:
            self.optimizers["vision"] = torch.optim.Adam(self.vision.parameters(), self.hyperparameters.vae_lr)
            latents[CODE] = Field((self.vision.code_size,), np.dtype(np.float32))
        given = (record_fields(self.parts.shapes, self.actions.size), environment.num_envs)
        options: dict[str, Any] = {"capacity": config.replay_size, "latents": latents, "on_disk": config.replay_on_disk}
        self.replay = self.context.make_buffer(REPLAY, RecordReplay, *given, **options)
        table = EpisodeTable(self.replay, config.held_out)
        seen = f"observation/{self.vision.key}"
        names = (CODE if self.vision.is_picture else seen, "action", "is_first", "reward", "is_terminal")
        sizes = {"batch_size": config.batch_size, "length": config.batch_length}
        self.sequences = ConsecutiveWindows(table, self.generators[SEQUENCES], **sizes, names=names)
        self.carried = self.model.initial(config.batch_size)
        """M's state after the newest window of each sequence."""
        self.frames = SingleRecords(table, self.generators[PICTURES], batch_size=config.vae_batch, names=(seen,))
        self.collector = SequenceCollector(
            environment, self.parts.split, self.actions.to_environment, self.actions.size, {}
        )
        self.memory = self.initial_state(environment.num_envs)
        self.walk = np.zeros((environment.num_envs, self.actions.outputs), np.float32)
        """[N, outputs] the newest random actions."""
        self.starts = np.zeros((0, self.vision.code_size), np.float32)
        self.encoded = 0
        """Records that the pass which is going on has encoded."""
        self.evolution = self._evolution()
        self.evolving = ""
        """Phase that the evolution belongs to."""
        self.trial: Trial | None = None
        self.on_trial = False
        """Whether the environments are in the middle of a trial's episodes."""
        self.contender: np.ndarray | None = None
        """Best controller of a generation after which the elite is judged."""
        self.history: list[list[float]] = []
        """Mean, best, elite's return and sigma of each generation."""
        self.judged = -1

    def _evolution(self, mean: np.ndarray | None = None) -> Evolution:
        config = self.config
        options: dict[str, Any] = {"population": config.population, "sigma": config.sigma, "l2": config.weight_decay}
        return Evolution(self.controllers.size, self.generators["evolve"], mean=mean, **options)

    def default_buffers(self) -> dict[str, Any]:
        """The replay that `collect` fills, and what V and M draw from it."""
        if self.context.train_environment is None:
            return {}
        buffers: dict[str, Any] = {REPLAY: self.replay, SEQUENCES: self.sequences}
        return buffers | ({PICTURES: self.frames} if self.vision.is_picture else {})

    # Acting

    def initial_state(self, num_envs: int) -> Memory:
        """An empty memory."""
        begins = torch.ones(num_envs, dtype=torch.bool, device=self.context.device)
        return Memory(self.model.initial(num_envs), begins)

    def reset_state(self, state: Memory, is_first: np.ndarray) -> Memory:
        """The memory with a new beginning where environments begin an episode."""
        return state._replace(begins=state.begins | torch.from_numpy(is_first).to(state.begins.device))

    def act(
        self,
        observation: np.ndarray,
        state: Any = None,
        *,
        deterministic: bool = False,
        action_mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Any, dict[str, np.ndarray]]:
        """The elite's actions for a batch of raw observations, with the code; not deterministic means that codes are drawn."""
        memory = self.initial_state(len(observation)) if state is None else state
        generator = None if deterministic else self.generators["act"]
        parts, elite = self.parts.split(observation), self.elite.weights[None]
        vectors, memory, z = self._control(parts, memory, elite, generator, action_mask)
        extras = {**self.actions.shown(vectors), "latent": z.cpu().numpy()}
        return self.actions.to_environment(vectors), memory, extras

    @torch.no_grad()
    def _control(
        self,
        parts: Mapping[str, np.ndarray],
        memory: Memory,
        weights: Tensor,
        generator: np.random.Generator | None,
        mask: np.ndarray | None = None,
    ) -> tuple[np.ndarray, Memory, Tensor]:
        """Action vectors [N, A] by one controller [1, D] or N of them, the memory after them, and z [N, Z]."""
        device = memory.begins.device
        code = self.vision(torch.from_numpy(parts[self.vision.key]).to(device))
        z = self.vision.draw(code, self._noise(generator, len(code)))
        hidden = memory.hidden.forget(memory.begins)
        features = self._features(z, hidden).view(len(weights), -1, self.controllers.inputs)
        outputs = self.controllers(weights, features).flatten(0, 1)
        vectors = self.actions.vectors(self.actions.squash(outputs, mask))
        if self.config.controller_sees != "z":
            hidden = self.model.step(z, vectors, memory.begins, hidden)
        return vectors.cpu().numpy(), Memory(hidden, torch.zeros_like(memory.begins)), z

    def _noise(self, generator: np.random.Generator | None, count: int) -> Tensor | None:
        """Normal numbers [count, Z] to draw codes with; None where there is nothing to draw."""
        if generator is None or not self.vision.is_picture:
            return None
        noise = generator.standard_normal((count, self.vision.size), dtype=np.float32)
        return torch.from_numpy(noise).to(self.context.device)

    def _features(self, z: Tensor, hidden: Hidden) -> Tensor:
        """What C is given, [N, F]."""
        seen = {"z": [z], "z_h": [z, hidden.h], "z_h_c": [z, hidden.h, hidden.c]}
        return torch.cat(seen[self.config.controller_sees], -1)

    # Collecting

    def collect(self, phase: PhaseView) -> CollectResult:
        """n_steps in each environment: at random, or with `actions: controller` in the phase by the elite."""
        steps = phase.steps(self.config.n_steps, self.context.train_environment.num_envs)
        if self.on_trial:
            # Evolution has used the environments since; what it has not finished it begins again.
            self.trial, self.on_trial = None, False
            self.collector.restart()
        act = self._act_by_elite if phase.options.get("actions") == "controller" else self._act_at_random
        records, episodes, env_steps = self.collector.collect(act, steps)
        return CollectResult(env_steps=env_steps, vec_steps=steps, trajectory=records, episodes=tuple(episodes))

    def _act_at_random(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        self.walk = self.actions.walk(self.walk, is_first, self.generators["collect"], mask)
        return self.actions.vectors(torch.from_numpy(self.walk)).numpy(), {}

    def _act_by_elite(
        self, parts: Mapping[str, np.ndarray], is_first: np.ndarray, mask: np.ndarray | None
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        memory, elite = self.reset_state(self.memory, is_first), self.elite.weights[None]
        vectors, self.memory, _ = self._control(parts, memory, elite, self.generators["collect"], mask)
        return vectors, {}

    def collect_codes(self, phase: PhaseView) -> CollectResult:
        """Encode every record with V as it is now; the replay keeps the codes of pictures."""
        if self.encoded == 0:
            self.starts = self.starts[:0]
        while (found := self.replay.stretch(self.encoded, ENCODED_AT_ONCE)) is not None:
            ids, values = found
            with torch.no_grad():
                seen = torch.from_numpy(values[f"observation/{self.vision.key}"]).to(self.context.device)
                code = self.vision(seen).cpu().numpy()
            if self.vision.is_picture:
                self.replay.write_back((ids, {CODE: code}))
            self.starts = np.concatenate([self.starts, code[values["is_first"]]])[-MOST_STARTS:]
            self.encoded += len(ids)
            if self.context.stop_requested():
                return CollectResult(env_steps=0, vec_steps=0, interrupted=True)
        self.encoded = 0
        # Codes mean something else than those that M has read.
        self.sequences.restart()
        return CollectResult(env_steps=0, vec_steps=0, metrics={"world_model/starts": len(self.starts)})

    # Learning to see and to expect

    def update_vision(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of V on pictures of the batch."""
        net = self.vision.net
        if not isinstance(net, ConvVAE):
            raise ConfigError(f"Phase {phase.name!r}: a vector is its own code, and update_vision learns pictures.")
        frames = torch.from_numpy(batch.values[f"observation/{self.vision.key}"][:, 0])
        losses = net.losses(frames.to(self.context.device).float() / 255)
        raw_kl, scales = losses.pop("raw_kl").detach(), {"reconstruction": 1.0, "kl": 1.0}
        norm = descend(self.optimizers["vision"], losses, scales, self.hyperparameters.vae_lr)
        metrics = {"world_model/vision_kl": raw_kl, "opt/grads/norm/vision": norm}
        return UpdateResult(updates=1, metrics=metrics | {f"loss/{key}": loss.detach() for key, loss in losses.items()})

    def update_world_model(self, batch: SequenceBatch, phase: PhaseView) -> UpdateResult:
        """One gradient step of M on the next window of each sequence, from the state that it was left in."""
        losses, self.carried = self.model.losses(*self._sequences(batch), self.carried, self.config.end_weight)
        scales = {"nll": 1.0, "reward": self.config.reward_scale, "end": self.config.end_scale}
        scales = {name: scale for name, scale in scales.items() if name in losses}
        metrics: dict[str, float | Tensor] = {**self._judge()}
        rate, clip = self.hyperparameters.model_lr, self.config.clip_value
        metrics["opt/grads/norm/model"] = descend(self.optimizers["model"], losses, scales, rate, clip_value=clip)
        return UpdateResult(updates=1, metrics=metrics | {f"loss/{key}": loss.detach() for key, loss in losses.items()})

    def _sequences(self, batch: SequenceBatch) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """z, drawn anew from the codes, action, is_first, reward and is_terminal, [T + 1, B, ...]."""
        values = (batch.values[name] for name in self.sequences.names)
        code, *others = (torch.from_numpy(value).to(self.context.device).transpose(0, 1) for value in values)
        z = self.vision.draw(code, torch.randn(*code.shape[:-1], self.vision.size, device=code.device))
        action, is_first, reward, is_terminal = others
        return z, action, is_first, reward, is_terminal

    def _judge(self) -> dict[str, float]:
        """Once an epoch: M on sequences held out, beside an M that has learned nothing, and errors of its dreams."""
        if self.judged == self.context.counters.epoch:
            return {}
        self.judged = self.context.counters.epoch
        batch = self.sequences.held_out_batch(HELD_OUT_ROWS)
        if batch is None:
            return {}
        data, begun = self._sequences(batch), self.model.initial(len(batch.ids))
        with torch.no_grad():
            learned, untrained = (m.losses(*data, begun)[0]["nll"].item() for m in (self.model, self.untrained))
        metrics = {"world_model/held_out_nll": learned, "world_model/untrained_nll": untrained}
        return metrics | self._held_out(batch).errors()

    # Learning to act

    def collect_returns(self, phase: PhaseView) -> CollectResult:
        """Play on with the controllers that are on trial: n_steps in each environment, fewer where all is played."""
        environment = self.context.train_environment
        if self.trial is None or phase.name != self.evolving:
            self.trial, self.on_trial = self._next_trial(phase, environment.num_envs), True
            environment.reset()
            self.memory = self.initial_state(environment.num_envs)
        trial, generator = self.trial, self.generators["collect"]
        weights = torch.from_numpy(trial.weights).float().to(self.context.device)
        episodes: list[Episode] = []
        env_steps = vec_steps = 0
        for _ in range(phase.steps(self.config.n_steps, environment.num_envs)):
            if trial.finished:
                break
            parts = self.parts.split(environment.observation)
            vectors, memory, _ = self._control(
                parts, self.memory, weights[trial.shown], generator, environment.action_mask
            )
            step = environment.step(self.actions.to_environment(vectors))
            for episode in step.episodes:
                trial.end(episode.env_index, episode.shaped_return, episode.broken)
            trial.begin(np.flatnonzero(step.is_first))
            self.memory = self.reset_state(memory, step.is_first)
            episodes += step.episodes
            env_steps += environment.num_envs if step.valid is None else int(np.count_nonzero(step.valid))
            vec_steps += 1
        return CollectResult(env_steps=env_steps, vec_steps=vec_steps, episodes=tuple(episodes))

    def _next_trial(self, phase: PhaseView, num_envs: int) -> Trial:
        """Of the next generation, or, where one was just told of, of those who may be called best."""
        if phase.name != self.evolving:
            # Another round, another M: what controllers are given means something else, and they begin at the elite.
            self.evolving, self.contender = phase.name, None
            elite = self.elite.weights.double().cpu().numpy()
            self.evolution = self._evolution(None if self.config.reuse_model else elite)
            self.elite.forget()
        if self.contender is None:
            return Trial(self.evolution.ask(), self.config.rollouts, num_envs, GENERATION)
        contenders = self.elite.contenders(self.contender, self.evolution.mean)
        return Trial(contenders, self.config.elite_rollouts, num_envs, ELITE)

    def update_controller(self, batch: None, phase: PhaseView) -> UpdateResult:
        """Learn from a trial that is over; a generation counts as one update, when its elite is judged too where that is due."""
        if self.config.evolve_in == "dream":
            self.trial = self._next_trial(phase, 0)
            self.trial.returns = self.dream_returns(self.trial.weights, self.trial.rollouts).tolist()
        trial = self.trial
        if trial is None or not trial.finished:
            return UpdateResult(updates=0)
        self.trial = None
        if trial.kind == ELITE:
            self.elite.judge(trial)
            self.contender = None
            self.history[-1][2] = self.elite.mean_return
            metrics = {
                "controller/return/elite": self.elite.mean_return,
                "controller/generation": self.evolution.generation,
            }
            return UpdateResult(updates=1, metrics=metrics)
        returns = trial.means
        self.evolution.tell(returns)
        self.history.append([returns.mean(), returns.max(), self.elite.mean_return, self.evolution.sigma])
        generation = self.evolution.generation
        due = generation == 1 or generation % self.config.elite_every == 0
        if due:
            self.contender = trial.weights[returns.argmax()]
        metrics = {"controller/return/mean": returns.mean(), "controller/return/best": returns.max()}
        metrics |= {"controller/sigma": self.evolution.sigma, "controller/generation": generation}
        return UpdateResult(updates=0 if due else 1, metrics=metrics)

    @torch.no_grad()
    def dream_returns(self, weights: np.ndarray, rollouts: int) -> np.ndarray:
        """Returns [K, rollouts] of controllers [K, D] inside M, all at once; each dreams from the same first observations."""
        if not len(self.starts):
            raise ConfigError("There is no first observation to dream from: run collect and collect_codes before.")
        device = self.context.device
        chosen = self.generators["evolve"].integers(len(self.starts), size=rollouts)
        code = torch.from_numpy(self.starts[chosen]).to(device)
        z = self.vision.draw(code, self._noise(self.generators["evolve"], rollouts)).repeat(len(weights), 1)
        returns = dream_returns(
            self.model,
            self.controllers,
            self.actions,
            torch.from_numpy(weights).float().to(device).repeat_interleave(rollouts, 0),
            z,
            features=self._features,
            temperature=self.hyperparameters.temperature,
            steps=self.config.dream_steps,
        )
        return self.dream_unit * returns.view(len(weights), rollouts).cpu().numpy()

    @property
    def dream_unit(self) -> int:
        """What M's rewards are worth; a dream that counts its steps counts them as the game does, where each is a few frames."""
        return 1 if self.config.predict_reward else self.config.frame_skip

    # Looking inside

    def imagine(self, recording: Recording, start: int, horizon: int) -> Dream:
        """Truth, reconstruction and dream of the `horizon` observations after `start`, each guess the likeliest; and dreams that are drawn."""
        observations, actions, seen = recording.around(start, horizon)
        z, action, begins = self.dreams.episode(observations, actions, bool(recording.is_first[start + 1 - seen]))
        # The same dream each time it is looked at, and none of the run's own chance.
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(start)
            drawn = [self.model.look_ahead(z, action, begins, seen, temperature) for temperature in SHOWN_TEMPERATURES]
        shown = [*self.dreams.shown(z, action, begins, seen), *(self.dreams.decoded(codes) for codes in drawn)]
        reconstruction, dream, *others = map(self.dreams.joined, shown)
        names = [f"temperature {temperature:g}" for temperature in SHOWN_TEMPERATURES]
        return Dream(observations[seen:], reconstruction, dream, dict(zip(names, others, strict=True)))

    def dream_start(self, recording: Recording) -> Asleep:
        """What M has taken in, and the code of what is seen."""
        return self.dreams.start(*recording.last_episode(), bool(recording.is_first.any()))

    def dream_step(
        self, state: Asleep, action: np.ndarray, generator: np.random.Generator | None = None
    ) -> tuple[Asleep, DreamStep]:
        """One step of M, drawn at the temperature; an episode is over where M says so."""
        temperature = self.hyperparameters.temperature
        state, observation, reward, ends = self.dreams.step(state, action, temperature, generator)
        return state, DreamStep(observation, self.dream_unit * reward, ends)

    def _held_out(self, batch: SequenceBatch) -> HeldOut:
        """What M makes of sequences that it was not trained on; the last 15 steps are dreamt."""
        z, action, is_first, _, _ = self._sequences(batch)
        seen, key = max(1, len(z) - HORIZONS[-1]), self.vision.key
        reconstruction, dream = self.dreams.shown(z, action, is_first, seen)
        name = f"observation/{key}"
        truth = self.replay.gather(batch.ids.T[seen:], (name,))[name]
        whole = np.logical_and.accumulate(~is_first[seen:].cpu().numpy())
        return HeldOut({key: truth}, {key: reconstruction}, {key: dream}, whole)

    def dreams_held_out(self) -> HeldOut | None:
        """Of sequences that M was not trained on."""
        batch = self.sequences.held_out_batch(HELD_OUT_ROWS)
        return None if batch is None else self._held_out(batch)

    def pictures(self) -> dict[str, Callable[[Path], Any]]:
        """A dream beside the truth, and the returns of the generations."""
        drawn = super().pictures()
        if self.history:
            drawn["Returns by generation"] = partial(draw_generations, history=self.history)
        return drawn

    # State

    def get_state(self) -> dict[str, Any]:
        """Generators, where environments and evolution are, and what dreams begin with."""
        hidden, begins = self.memory
        return {
            "generators": self.random_states(without=(PICTURES, SEQUENCES, "evolve")),
            "memory": {"h": hidden.h, "c": hidden.c, "begins": begins},
            "carried": {"h": self.carried.h, "c": self.carried.c},
            "collector": self.collector.get_state(),
            "walk": self.walk,
            "starts": self.starts,
            "encoded": self.encoded,
            "evolution": self.evolution.get_state(),
            "evolving": self.evolving,
            "trial": None if self.trial is None else self.trial.get_state(),
            "on_trial": self.on_trial,
            "contender": self.contender,
            "history": [list(map(float, row)) for row in self.history],
            "judged": self.judged,
        }

    def set_state(self, state: dict[str, Any]) -> None:
        """Take back what `get_state` gave."""
        self.set_random_states(state["generators"])
        h, c, begins = (torch.as_tensor(state["memory"][n]).to(self.context.device) for n in ("h", "c", "begins"))
        self.memory = Memory(Hidden(h, c), begins)
        # A checkpoint from before it was carried has none, and no sequences either: these begin anew, each with an episode.
        carried = state.get("carried", {"h": self.carried.h, "c": self.carried.c})
        self.carried = Hidden(*(torch.as_tensor(carried[name]).to(self.context.device) for name in ("h", "c")))
        self.collector.set_state(state["collector"])
        self.evolution.set_state(state["evolution"])
        self.trial = None if state["trial"] is None else Trial.from_state(state["trial"])
        self.walk, self.starts, self.contender = state["walk"], state["starts"], state["contender"]
        self.encoded, self.evolving, self.judged = state["encoded"], state["evolving"], state["judged"]
        self.on_trial = state["on_trial"]
        self.history = [list(row) for row in state["history"]]

    def describe(self) -> dict[str, Any]:
        """Derived numbers: parameters of each part, episodes of a generation, memory of the replay."""
        config = self.config
        described: dict[str, Any] = {
            "parameters/vision": count_parameters(self.vision),
            "parameters/model": count_parameters(self.model),
            "parameters/controller": self.controllers.size,
            "batch": f"{config.batch_size} x {config.batch_length} steps, M's state carried on",
            "episodes_per_generation": config.population * config.rollouts,
        }
        return described | (self.replay.describe() if self.context.train_environment is not None else {})
