"""What the processor says of itself."""

from gymlab.bench.processor import computes_bfloat16


def test_bfloat16_is_what_the_processor_says(tmp_path):
    flags = tmp_path / "cpuinfo"
    flags.write_text("model name : x\nflags : fpu avx512f avx512_bf16\n")
    assert computes_bfloat16(flags)
    flags.write_text("model name : avx512_bf16\nflags : fpu avx512f avx512_vnni\n")
    assert not computes_bfloat16(flags)
    assert not computes_bfloat16(tmp_path / "missing")
