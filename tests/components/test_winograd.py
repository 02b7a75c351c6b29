"""Convolutions by Winograd's method, against torch's own."""

from __future__ import annotations

import ctypes
import multiprocessing
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from gymlab.components import winograd
from gymlab.components.compiled import FLAGS, REGISTERS, compile_library, find_compiler, kernels
from gymlab.components.winograd import Convolution3x3, convolve, weight_gradient

pytestmark = pytest.mark.skipif(kernels("winograd") is None, reason="no C compiler, or a processor of another kind")


def compiled(directory: Path, level: str, lanes: int) -> ctypes.CDLL:
    """The kernel for such instructions with registers of so many numbers; wider ones than there are, a compiler puts together."""
    library = directory / f"winograd-{level}-{lanes}.so"
    source = Path(winograd.__file__).with_suffix(".c")
    compile_library([*find_compiler(), *FLAGS, *REGISTERS[level], f"-DLANES={lanes}"], source, library)
    made = ctypes.CDLL(str(library))
    made.room.restype = ctypes.c_long
    return made


@pytest.fixture(scope="module", params=[8, 16])
def functions(request, tmp_path_factory):
    """The kernel for the best instructions that there are."""
    return compiled(tmp_path_factory.mktemp("kernels"), torch.backends.cpu.get_cpu_capability(), request.param)


@pytest.fixture(autouse=True)
def _used(functions, monkeypatch) -> None:
    """Whatever is quicker here."""
    monkeypatch.setattr(winograd, "_functions", lambda: functions)
    monkeypatch.setattr(winograd, "is_wanted", lambda: True)


@pytest.fixture
def threads():
    """Sets torch's number of threads, and sets it back."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


def in_channel_0(numbers: list[list[float]]) -> torch.Tensor:
    picture = torch.zeros(1, 32, len(numbers), len(numbers[0]))
    picture[0, 0] = torch.tensor(numbers)
    return picture


NUMBERS = in_channel_0([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12], [13, 14, 15, 16]])


def test_a_tile_by_hand() -> None:
    """Sums of windows, 14 = 1 + 2 + 5 + 6, and twice that where the kernel is 2."""
    weight = torch.zeros(32, 32, 3, 3)
    weight[0, 0], weight[5, 0] = 1, 2
    found = convolve(NUMBERS, weight, torch.arange(32.0))
    sums = torch.tensor([[14.0, 24, 30, 22], [33, 54, 63, 45], [57, 90, 99, 69], [46, 72, 78, 54]])
    torch.testing.assert_close(found[0, 0], sums, atol=1e-3, rtol=0)
    torch.testing.assert_close(found[0, 5], 2 * sums + 5, atol=1e-3, rtol=0)
    torch.testing.assert_close(found[0, 6], torch.full((4, 4), 6.0))


def test_a_bias_may_be_one_number_for_all() -> None:
    found = convolve(NUMBERS, torch.zeros(32, 32, 3, 3), torch.tensor([3.0]).expand(32))
    assert torch.equal(found, torch.full((1, 32, 4, 4), 3.0))


def test_a_gradient_by_hand() -> None:
    """Of the outputs only the one at row 1, column 2 counts: the weights' gradient is its window."""
    gradient = in_channel_0([[0, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 0], [0, 0, 0, 0]])
    found = weight_gradient(NUMBERS, gradient)
    torch.testing.assert_close(found[0, 0], torch.tensor([[2.0, 3, 4], [6, 7, 8], [10, 11, 12]]), atol=1e-4, rtol=0)
    assert found[1:].abs().max() == found[:, 1:].abs().max() == 0


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("layout", [torch.channels_last, torch.contiguous_format])
@pytest.mark.parametrize(("inputs", "outputs", "height", "width"), [(32, 32, 4, 4), (96, 32, 8, 20), (32, 64, 28, 4)])
def test_it_is_the_convolution_of_torch(
    inputs: int, outputs: int, height: int, width: int, layout, count: int, monkeypatch, threads
) -> None:
    monkeypatch.setattr(winograd, "FEWEST_TILES", 1)
    monkeypatch.setattr(winograd, "FEWEST_A_THREAD", 1)
    threads(count)
    torch.manual_seed(0)
    layer = Convolution3x3(inputs, outputs).to(memory_format=layout)
    x = torch.randn(5, inputs, height, width).to(memory_format=layout).requires_grad_()
    ours = layer(x)
    assert "_Convolution" in ours.grad_fn.name()
    learned = (x, layer.weight, layer.bias)
    exact = tuple(tensor.detach().double().requires_grad_() for tensor in learned)
    theirs = functional.conv2d(*exact, padding=1)
    push = torch.randn_like(theirs)
    found = (ours, *torch.autograd.grad(ours, learned, push.float()))
    expected = (theirs, *torch.autograd.grad(theirs, exact, push))
    for one, other in zip(found, expected, strict=True):
        assert (one - other).abs().max() < 1e-5 * other.abs().max()


def test_forward_does_not_depend_on_the_number_of_threads(threads, monkeypatch) -> None:
    monkeypatch.setattr(winograd, "FEWEST_A_THREAD", 1)
    torch.manual_seed(0)
    x, weight = torch.randn(3, 32, 20, 12), torch.randn(64, 32, 3, 3)
    found = []
    for count in (1, 2, 5):
        threads(count)
        found.append(convolve(x, weight))
    assert torch.equal(found[0], found[1])
    assert torch.equal(found[0], found[2])


def test_a_forked_process_has_threads_of_its_own(threads, monkeypatch) -> None:
    monkeypatch.setattr(winograd, "FEWEST_A_THREAD", 1)
    threads(2)
    x, weight = torch.ones(3, 32, 16, 16), torch.ones(32, 32, 3, 3)
    convolve(x, weight)
    child = multiprocessing.get_context("fork").Process(target=convolve, args=(x, weight))
    child.start()
    child.join(20)
    child.kill()
    assert child.exitcode == 0


def test_gradients_of_a_large_batch_keep_five_digits() -> None:
    """122,880 products to a sum: of random size and sign, so that nothing of the error is hidden by a large mean."""
    torch.manual_seed(0)
    x, gradient = (torch.randn(30, 32, 64, 64).to(memory_format=torch.channels_last) for _ in range(2))
    exact = torch.nn.grad.conv2d_weight(x.double(), (32, 32, 3, 3), gradient.double(), padding=1)
    error = (weight_gradient(x, gradient) - exact).square().mean().sqrt()
    assert error < 2.5e-6 * exact.square().mean().sqrt()


def test_all_instructions_give_the_same_bits(functions, tmp_path, threads, monkeypatch) -> None:
    """Where the processor has AVX-512, its kernel and the one of other processors; else registers of two widths."""
    threads(1)
    torch.manual_seed(0)
    x, gradient, weight = torch.randn(7, 32, 32, 32), torch.randn(7, 64, 32, 32), torch.randn(64, 32, 3, 3)
    ours = convolve(x, weight), weight_gradient(x, gradient)
    monkeypatch.setattr(winograd, "_functions", lambda: others)
    for lanes in (8, 16):
        others = compiled(tmp_path, "AVX2", lanes)
        assert torch.equal(convolve(x, weight), ours[0])
        assert torch.equal(weight_gradient(x, gradient), ours[1])


@pytest.mark.parametrize("pictures", [6, 7])
def test_sums_by_spans_count_each_tile_once(pictures: int, threads) -> None:
    """Spans are 384 tiles: with 64 a picture, six are one span and seven are one and a sixth. Whole numbers have no rounding to hide in."""
    threads(1)
    x, gradient = (torch.ones(pictures, 32, 32, 32).to(memory_format=torch.channels_last) for _ in range(2))
    found = weight_gradient(x, gradient)
    assert found[0, 0, 1, 1] == pytest.approx(pictures * 32 * 32, rel=1e-6)
    assert found[0, 0, 0, 1] == pytest.approx(pictures * 31 * 32, rel=1e-6)


FITS = {"inputs": 32, "outputs": 64, "side": 16, "batch": 3, "dtype": torch.float32}


@pytest.mark.parametrize(
    ("change", "own"),
    [
        ({}, True),
        ({"batch": 2}, False),
        ({"inputs": 24}, False),
        ({"outputs": 3}, False),
        ({"side": 18}, False),
        ({"dtype": torch.bfloat16}, False),
        ({"dtype": torch.float64}, False),
    ],
)
def test_it_steps_back_where_it_does_not_fit(change: dict, own: bool) -> None:
    case = FITS | change
    x = torch.randn(case["batch"], case["inputs"], case["side"], case["side"], dtype=case["dtype"])
    out = Convolution3x3(case["inputs"], case["outputs"]).to(case["dtype"])(x)
    assert ("_Convolution" in out.grad_fn.name()) == own


def test_without_kernels_torch_computes(monkeypatch) -> None:
    layer, x = Convolution3x3(32, 32), torch.randn(3, 32, 16, 16)
    with_kernels = layer(x)
    monkeypatch.setattr(winograd, "is_wanted", lambda: False)
    without = layer(x)
    assert "_Convolution" not in without.grad_fn.name()
    assert (with_kernels - without).abs().max() < 2e-5 * without.abs().max()


def test_autocast_is_left_to_torch() -> None:
    with torch.autocast("cpu", torch.bfloat16):
        assert Convolution3x3(32, 32)(torch.randn(3, 32, 16, 16)).dtype == torch.bfloat16


def test_what_is_frozen_gets_no_gradient() -> None:
    layer = Convolution3x3(32, 32).requires_grad_(False)
    x = torch.randn(3, 32, 16, 16, requires_grad=True)
    layer(x).sum().backward()
    assert x.grad is not None
    assert layer.weight.grad is None
    assert layer.bias.grad is None


def test_a_gradient_of_a_gradient_is_refused_and_not_wrong() -> None:
    x = torch.randn(3, 32, 16, 16, requires_grad=True)
    (gradient,) = torch.autograd.grad(Convolution3x3(32, 32)(x).square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


def test_the_quicker_one_is_chosen(monkeypatch) -> None:
    times = {"conv2d": 2.0, "convolve": 1.0}
    monkeypatch.setattr(winograd, "seconds_by_turns", lambda ways, turns: [times[way.func.__name__] for way in ways])
    before = torch.get_num_threads()
    assert winograd._is_quicker()
    times["conv2d"] = 0.5
    assert not winograd._is_quicker()
    assert torch.get_num_threads() == before


def test_choosing_draws_no_random_numbers() -> None:
    torch.manual_seed(0)
    before = torch.get_rng_state()
    winograd._is_quicker()
    assert torch.equal(torch.get_rng_state(), before)
