"""The command that compiles ahead, and its cache."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from sapwood.srt.kernels import compiled, small

ROOT = Path(__file__).parents[2]


def run(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


ONE = """
from sapwood.srt.kernels import compiled, small
print(compiled.ready(small.silu_mul), compiled.cache_folder())
"""


def test_the_second_process_loads_what_the_first_compiled(tmp_path: Path) -> None:
    first = run(ONE, NUMBA_CACHE_DIR=str(tmp_path)).split()
    second = run(ONE, NUMBA_CACHE_DIR=str(tmp_path)).split()
    assert (first[0], second[0]) == ("False", "True")
    assert Path(second[1]).parent == tmp_path
    assert any(Path(second[1]).rglob("*.nbc"))


def test_a_cache_that_cannot_be_written_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    environment = {
        "NUMBA_CACHE_DIR": str(tmp_path / "file" / "a"),
        "XDG_CACHE_HOME": str(tmp_path / "file"),
        "HOME": str(tmp_path / "file"),
        "TMPDIR": str(tmp_path),
    }
    folder = Path(run(ONE, **environment).split()[1])
    assert folder.is_relative_to(tmp_path / f"sapwood-{os.getuid()}")


def test_another_version_of_any_source_has_another_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "compiled.py").write_text("")
    (tmp_path / "simd.py").write_text("1")
    monkeypatch.setattr(compiled, "__file__", str(tmp_path / "compiled.py"))
    before = compiled._digest()
    (tmp_path / "simd.py").write_text("2")
    assert compiled._digest() != before


def test_the_openmp_library_of_torch_is_found_on_linux() -> None:
    if sys.platform != "linux" or not torch.backends.openmp.is_available():
        pytest.skip("only there is it known to be")
    assert compiled.parallel_address() != 0


def test_a_kernel_has_one_signature() -> None:
    compiled.ready(small.rope)
    assert len(small.rope.signatures) == 1


PLAIN = """
import torch
from tests.cpu_kernels import test_cpu_attention as t
from sapwood.srt.kernels.emit import has_dots
assert not has_dots()
for shape in ((9, 3, 64), (4, 2, 8), (5, 1, 100)):
    t.check([(300, 301), (5, 70), (0, 1)], shape, dtype=torch.bfloat16)
"""


@pytest.mark.long
def test_bfloat16_on_a_processor_that_does_not_multiply_it(tmp_path: Path) -> None:
    run(PLAIN, NUMBA_CPU_NAME="x86-64-v3", NUMBA_CPU_FEATURES="+avx,+avx2,+fma,+bmi,+bmi2,+f16c")
