"""Blocks of tokens: what is read where, what is seen from where, and dreams that go on where sequences end."""

import pytest
import torch
from delta_iris_helpers import ACTIONS, SHAPE, small
from torch.nn import functional

from gymlab.components.delta_tokenizer import DeltaTokenizer
from gymlab.components.token_world_model import TokenWorldModel


def made(**changes):
    torch.manual_seed(0)
    config = small(**changes)
    model, tokenizer = TokenWorldModel(config, SHAPE, ACTIONS), DeltaTokenizer(config, SHAPE, ACTIONS)
    # The small weights that it begins with would make all logits nearly equal.
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return model.eval(), tokenizer.eval()


def sequences(steps=4, batch=2):
    generator = torch.Generator().manual_seed(1)
    frames = torch.rand(batch, steps, *SHAPE, generator=generator)
    actions = torch.randint(0, ACTIONS, (batch, steps), generator=generator)
    tokens = torch.randint(0, 32, (batch, steps, 4), generator=generator)
    return frames, actions, tokens


def outputs_of(model, frames, actions, tokens):
    """Of the whole sequence, [B, T, block, W]."""
    parts = [model.frame_tokens(frames).unsqueeze(2), model.actions(actions).unsqueeze(2), model.words(tokens)]
    return model.transformer(torch.cat(parts, dim=2).flatten(1, 2)).unflatten(1, (-1, model.block))


@torch.no_grad()
def test_losses_read_the_right_places():
    model, _ = made()
    frames, actions, tokens = sequences()
    reward, ended = torch.tensor([[1.0, 0.0, -2.0, 5.0]] * 2), torch.tensor([[False, False, True, False]] * 2)
    mask = torch.tensor([[True, True, True, False], [False, True, True, True]])
    losses, metrics = model.losses(frames, actions, tokens, reward, ended, mask)
    outputs = outputs_of(model, frames, actions, tokens)
    words = reward_loss = end = 0.0
    right = 0
    for row, step in mask.nonzero().tolist():
        for place in range(4):
            logits = model.word_head(outputs[row, step, 1 + place])
            words += functional.cross_entropy(logits, tokens[row, step, place]).item() / 24
            right += int(logits.argmax() == tokens[row, step, place])
        at_action = outputs[row, step, 1]
        reward_loss += model.two_hot.loss(model.reward_head(at_action), reward[row, step]).item() / 6
        end += functional.cross_entropy(model.end_head(at_action), ended[row, step].long()).item() / 6
    assert losses["words"].item() == pytest.approx(words, rel=1e-4)
    assert losses["reward"].item() == pytest.approx(reward_loss, rel=1e-4)
    assert losses["end"].item() == pytest.approx(end, rel=1e-4)
    assert metrics["word_accuracy"].item() == pytest.approx(right / 24)


@torch.no_grad()
def test_padding_at_the_end_counts_nothing():
    model, _ = made()
    frames, actions, tokens = sequences()
    mask = torch.tensor([[True, True, True, False]] * 2)
    found = []
    for filling in (0.0, 1.0):
        frames[:, 3] = filling
        reward, ended = torch.full((2, 4), filling), torch.zeros(2, 4, dtype=torch.bool)
        reward[:, :3] = 0.5
        found.append(model.losses(frames, actions, tokens, reward, ended, mask)[0])
    assert all(torch.equal(found[0][name], found[1][name]) for name in found[0])


@torch.no_grad()
def test_the_last_word_of_a_step_is_not_seen_before_it():
    model, _ = made()
    frames, actions, tokens = sequences()
    other = tokens.clone()
    other[:, 1, 3] = (tokens[:, 1, 3] + 1) % 32
    before, after = outputs_of(model, frames, actions, tokens), outputs_of(model, frames, actions, other)
    place = 1 * model.block + 5
    assert torch.equal(before.flatten(1, 2)[:, :place], after.flatten(1, 2)[:, :place])
    assert not torch.allclose(before.flatten(1, 2)[:, place:], after.flatten(1, 2)[:, place:], atol=1e-3)


@torch.no_grad()
@pytest.mark.parametrize("rewards", ["two_hot", "sign"])
def test_a_dream_is_what_the_whole_sequence_says(rewards):
    """Step by step with the cache, and all at once with the frames and words that came of it."""
    model, tokenizer = made(rewards=rewards)
    frames, actions, tokens = sequences(steps=2)
    dream = model.begin(frames, actions[:, :1], tokens[:, :1])
    seen_frames, seen_actions, seen_tokens = [frames], [actions[:, :1]], [tokens[:, :1]]
    outcomes = []
    for step in range(3):
        action = torch.tensor([step % ACTIONS, 1])
        outcomes.append(model.step(dream, action, tokenizer))
        dream = outcomes[-1].dream
        seen_frames.append(dream.frame.unsqueeze(1))
        seen_actions.append(action.unsqueeze(1))
        seen_tokens.append(outcomes[-1].tokens.unsqueeze(1))
    outputs = outputs_of(
        model, torch.cat(seen_frames, 1)[:, :-1], torch.cat(seen_actions, 1), torch.cat(seen_tokens, 1)
    )
    for step, outcome in enumerate(outcomes, 1):
        assert torch.equal(outcome.tokens, model.word_head(outputs[:, step, 1:-1]).argmax(-1))
        assert torch.allclose(outcome.reward, model.read_reward(model.reward_head(outputs[:, step, 1])), atol=1e-3)
        assert torch.equal(outcome.ended, model.end_head(outputs[:, step, 1]).argmax(-1).bool())


@torch.no_grad()
def test_when_places_are_used_up_the_dream_goes_on_from_its_frame():
    model, tokenizer = made()
    frames, actions, tokens = sequences(steps=2)
    dream = model.begin(frames, actions[:, :1], tokens[:, :1])
    action = torch.tensor([0, 2])
    for _ in range(3):
        dream = model.step(dream, action, tokenizer).dream
    assert dream.cache.length == 2 * 6 + 6 + 5
    gone_on = model.step(dream, action, tokenizer)
    fresh = model.step(model.begin(dream.frame.unsqueeze(1), action[:, None][:, :0], tokens[:, :0]), action, tokenizer)
    assert torch.equal(gone_on.tokens, fresh.tokens)
    assert torch.allclose(gone_on.dream.frame, fresh.dream.frame)
    assert gone_on.dream.cache.length < dream.cache.length


def read_anew(model, memory, frame, action, tokens):
    """Outputs [B, block, W] for a step without any cache: everything that is remembered is read again, from the first position on."""
    frames, actions, words = (torch.stack(part, 1) for part in zip(*memory, (frame, action, tokens), strict=True))
    return outputs_of(model, frames, actions, words)[:, -1]


@torch.no_grad()
@pytest.mark.parametrize("drawn", [False, True])
def test_a_dream_of_ten_times_the_context_is_that_of_a_model_without_a_cache(drawn):
    """The rule: as many steps are remembered as the context has blocks; when another does not fit, all are forgotten but the frame."""
    model, tokenizer = made()
    blocks, generator = 4, torch.Generator().manual_seed(2)
    frames, actions, tokens = sequences(steps=2)
    dream = model.begin(frames, actions[:, :1], tokens[:, :1])
    memory, forgotten = [(frames[:, 0], actions[:, 0], tokens[:, 0])], []
    for step in range(10 * blocks):
        if len(memory) == blocks:
            memory.clear()
            forgotten.append(step)
        action = torch.randint(0, ACTIONS, (2,), generator=generator)
        noise = -torch.empty(2, 6, 32).exponential_(generator=generator).log() if drawn else None
        outcome = model.step(dream, action, tokenizer, noise)
        outputs = read_anew(model, memory, dream.frame, action, outcome.tokens)
        logits = [*model.word_head(outputs[:, 1:-1]).unbind(1), model.end_head(outputs[:, 1])]
        for place, (scores, choice) in enumerate(zip(logits, [*outcome.tokens.T, outcome.ended.long()], strict=True)):
            scores = scores if noise is None else scores + noise[:, place, : scores.shape[-1]]
            chosen = scores.gather(1, choice[:, None])[:, 0]
            assert torch.allclose(chosen, scores.amax(1), atol=1e-3)
        assert torch.allclose(outcome.reward, model.read_reward(model.reward_head(outputs[:, 1])), rtol=1e-3, atol=1e-3)
        expected = tokenizer.next_frame(dream.frame, action, outcome.tokens)
        assert torch.equal(outcome.dream.frame, expected)
        memory.append((dream.frame, action, outcome.tokens))
        dream = outcome.dream
    # One step was remembered at first; from then on memory is full after every fourth.
    assert forgotten == list(range(3, 40, 4))


@torch.no_grad()
def test_words_rewards_and_ends_are_drawn_by_their_chances():
    model, tokenizer = made(rewards="sign")
    count = 4000
    frames = torch.rand(1, 1, *SHAPE).expand(count, -1, -1, -1, -1)
    dream = model.begin(frames, torch.zeros(count, 0, dtype=torch.int64), torch.zeros(count, 0, 4, dtype=torch.int64))
    noise = -torch.empty(count, 6, 32).exponential_(generator=torch.Generator().manual_seed(0)).log()
    outcome = model.step(dream, torch.ones(count, dtype=torch.int64), tokenizer, noise)
    tokens = torch.zeros(1, 1, 4, dtype=torch.int64)
    output = outputs_of(model, frames[:1], torch.ones(1, 1, dtype=torch.int64), tokens)[0, 0, 1]
    for head, drawn in (
        (model.word_head, outcome.tokens[:, 0]),
        (model.reward_head, outcome.reward.long() + 1),
        (model.end_head, outcome.ended.long()),
    ):
        chances = head(output).softmax(-1)
        share = torch.bincount(drawn, minlength=len(chances)) / count
        assert torch.allclose(share, chances, atol=0.03)
