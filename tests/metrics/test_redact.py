import copy
import json
import shlex
import time
from urllib.parse import quote, quote_plus

import pytest

from gymlab.metrics.redact import REDACTED, forget_secrets, is_secret_key, redact, redact_text, remember_secrets

HEX_KEY = "0123456789abcdef0123456789abcdef01234567"
# Put together at run time, so that scanners of the repository find no token in it.
CANARIES = [
    "hf_" + "CanaryCanaryCanaryCanary123456",
    HEX_KEY,
    "sk-" + "canaryCANARY0123456789abcd",
    "ghp_" + "canaryCANARY0123456789abcdefghijklmn",
    "github_pat_" + "canary_CANARY0123456789abc",
    "AKIA" + "CANARYCANARY0123",
    "xoxb-" + "1234567890-canary",
    "wandb_v1_" + "CanaryCanaryCanaryCanary123456",
]


@pytest.mark.parametrize("canary", CANARIES)
def test_tokens_are_blanked_wherever_they_stand(canary):
    nested = {"env_kwargs": {"note": f"see {canary}."}, "list": [canary, {"x": (canary,)}], canary: 1}
    nested["bytes"] = canary.encode()
    assert canary not in repr(redact(nested))
    assert canary not in redact_text(f"logging in with '{canary}'")


SECRET_KEYS = ["token", "hf_token", "WANDB_API_KEY", "apiKey", "password", "db-password", "secret", "client_secret"]
SECRET_KEYS += ["key", "private_key", "Authorization"]


@pytest.mark.parametrize("key", SECRET_KEYS)
def test_values_are_blanked_by_the_name_of_their_key(key):
    assert is_secret_key(key)
    assert redact({"outer": {key: "short"}}) == {"outer": {key: REDACTED}}
    assert redact({key: {"value": ["short", None]}}) == {key: {"value": [REDACTED, None]}}


@pytest.mark.parametrize("key", ["tokenizer", "step_key", "key_priority", "keys", "monkey", "secretary", "lr", ""])
def test_ordinary_keys_are_left_alone(key):
    assert not is_secret_key(key)
    assert redact({key: "value"}) == {key: "value"}


def test_numbers_under_token_are_dimensions_and_under_password_are_secrets():
    assert redact({"token_dim": 64, "tokens": 4, "password": 1234, "use_token": True}) == {
        "token_dim": 64,
        "tokens": 4,
        "password": REDACTED,
        "use_token": True,
    }


def test_urls_lose_their_user_info_and_nothing_else():
    assert redact_text("https://me:canary@host.org/path?x=1") == f"https://{REDACTED}@host.org/path?x=1"
    assert redact_text("https://canary@host.org/p") == f"https://{REDACTED}@host.org/p"
    assert redact_text("ssh://git@host.org/p https://host.org/a@b") == "ssh://git@host.org/p https://host.org/a@b"
    assert redact_text("https://host.org/?token=canary42&page=2") == f"https://host.org/?token={REDACTED}&page=2"


@pytest.mark.parametrize(
    "path", [f"/home/me/{HEX_KEY}/my_env.py:40", f"{HEX_KEY}/maze.py", f"see /cache/{HEX_KEY} for it"]
)
def test_a_directory_of_hexadecimal_digits_is_no_key(path):
    assert redact_text(path) == path


@pytest.mark.parametrize("text", [f"https://hooks.org/{HEX_KEY}/send", f"key={HEX_KEY}", f"key {HEX_KEY}, and/or"])
def test_hexadecimal_digits_elsewhere_stay_a_key(text):
    assert HEX_KEY not in redact_text(text)


def test_assignments_flags_and_headers_in_text():
    for text in (
        "WANDB_API_KEY=canary42",
        "--hf-token canary42",
        '{"api_key": "canary42"}',
        "Authorization: Bearer canary42x",
        "password: canary42",
    ):
        assert "canary" not in redact_text(text), text
    command = ["gymlab", "train", "--hf-token", "canary"]
    assert redact({"command": command}) == {"command": ["gymlab", "train", "--hf-token", REDACTED]}
    for harmless in ("n_tokens: 1024 and token_dim=64", "a basic experiment"):
        assert redact_text(harmless) == harmless


def test_a_git_commit_is_no_secret():
    assert redact({"git_commit": HEX_KEY}) == {"git_commit": HEX_KEY}
    assert redact({"git": {"sha": HEX_KEY}}) == {"git": {"sha": HEX_KEY}}
    assert redact_text(f"commit {HEX_KEY}") == f"commit {HEX_KEY}"


def test_the_original_is_not_changed_and_types_stay():
    original = {
        "headers": {"Authorization": "Bearer canary42x"},
        "seed": 3,
        "sizes": (64, 64),
        "on": True,
        "none": None,
    }
    before = copy.deepcopy(original)
    cleaned = redact(original)
    assert original == before
    assert cleaned == {**before, "headers": {"Authorization": REDACTED}}
    assert "canary" not in json.dumps(cleaned)


@pytest.fixture
def known():
    """Remember the secrets of configs; nobody knows them afterwards."""
    yield remember_secrets
    forget_secrets()


@pytest.mark.parametrize("value", ["correct horse", 'it\'s \\ "quoted"\n', "größer-77", "100% sure&more", "x7#Q"])
def test_a_known_value_is_blanked_however_it_is_quoted(known, value):
    known({"env_kwargs": {"password": value}})
    forms = [
        value,
        repr(value),
        json.dumps(value),
        json.dumps(value, ensure_ascii=False),
        quote(value),
        quote_plus(value),
    ]
    forms.append(shlex.join(["gymlab", f"say={value}"]))
    for form in forms:
        assert redact_text(f"a {form} z").count(REDACTED) == 1, form
        assert value not in redact_text(form)
    assert redact({"note": value}) == {"note": value}, "a config is stored by its names and looks"


@pytest.mark.parametrize(
    "value",
    ["", "1", "42", "12345", "-1.5", "abc", "true", "None", "default", "train", "epoch", "    ", None, True, 3.25],
)
def test_short_and_common_values_blank_no_log(known, value):
    known({"password": value, "api_key": value})
    text = "epoch 12345, 42 steps: train 1 true None abc default -1.5 3.25    "
    assert redact_text(text) == text


def test_a_short_value_is_blanked_as_a_whole_word(known):
    known({"password": "cart", "secret": 123456})
    assert (
        redact_text("cart cartpole go-cart 123456 1234567") == f"{REDACTED} cartpole go-{REDACTED} {REDACTED} 1234567"
    )
    known({"password": "cartpole"})
    assert redact_text("cartpole cartpoles cart") == f"{REDACTED} {REDACTED}s {REDACTED}"


def test_parts_of_what_is_known(known):
    key = "-----BEGIN RSA KEY-----\nMIIEowIBAAKCAQEA\nq83vEjRWeJq83vEj\n-----END-----"
    known({"url": "https://me:geheim%2B77@host/p", "nested": [{"private_key": key}], "note": "token=zugang99"})
    for text in ("wrong password geheim+77", "geheim%2B77", "line MIIEowIBAAKCAQEA", "no zugang99 here"):
        assert redact_text(text).count(REDACTED) == 1, text
    assert redact_text("the host is host") == "the host is host"


def test_many_known_values(known):
    known({"secrets": {f"key{number}": f"value-{number}-end" for number in range(500)}})
    text = " ".join(f"value-{number}-end" for number in range(500))
    assert redact_text(text) == " ".join([REDACTED] * 500)
    known({"password": REDACTED})
    assert redact_text(f"it is {REDACTED}.") == f"it is {REDACTED}."


LONG = {
    "a word": "a",
    "digits": "1",
    "words with points": "a.",
    "words with dashes": "a-",
    "names of secrets": "password",
    "beginnings of a token": "eyJ-",
    "beginnings of a key": "-----BEGIN PRIVATE KEY-----",
    "beginnings of an address": "http://",
    "spaces": "token ",
}


@pytest.mark.parametrize("piece", LONG.values(), ids=LONG)
def test_a_long_text_takes_time_in_proportion(piece):
    """An encoded picture in an error, or a file that means harm: with a time that grows by the square this would be minutes."""
    text = piece * (30_000 // len(piece))
    began = time.thread_time()
    assert redact_text(text) == text
    assert time.thread_time() - began < 10


def test_long_names_and_keys_are_blanked_all_the_same():
    name = "my_" * 100 + "password"
    assert redact_text(f"{name}=hunter2hunter2") == f"{name}={REDACTED}"
    assert redact_text(f"password{' ' * 100}= hunter2hunter2") == f"password{' ' * 100}= {REDACTED}"
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{'A' * 6500}\n-----END RSA PRIVATE KEY-----"
    assert redact_text(f"see {key}.") == f"see {REDACTED}."
    token = "eyJ" + "a" * 900 + "." + "b" * 5000 + "." + "c" * 500
    assert redact_text(f"see {token}.") == f"see {REDACTED}."
