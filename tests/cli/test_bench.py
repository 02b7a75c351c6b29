"""`gymlab bench` hands over to the benches."""

from types import SimpleNamespace

import gymlab.bench
from gymlab.bench import BENCHES, load_bench


def test_alone_it_lists_the_benches(cli):
    shown = cli("bench")
    assert shown.code == 0
    for name in BENCHES:
        assert name in shown.out
        assert load_bench(name).HELP


def test_a_bench_gets_its_own_options(cli, monkeypatch):
    seen = {}

    def remember(arguments):
        seen.update(vars(arguments))
        return 7

    monkeypatch.setattr(load_bench("ppo"), "run_command", remember)
    assert cli("bench", "ppo", "--json", "--quick").code == 7
    assert seen["json"] is True
    assert seen["quick"] is True
    assert isinstance(gymlab.bench.BENCHES, tuple)
    assert SimpleNamespace(**seen).bench == "ppo"
