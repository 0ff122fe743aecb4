"""Tables of rotary position embedding (Su et al. 2021, RoFormer) and its scaled kinds."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..model_config import RopeConfig


def rope_tables(
    rope: RopeConfig, head_dim: int, positions: int, device: torch.device | str = "cpu"
) -> tuple[Tensor, Tensor]:
    """cos and sin of every position and pair, float32 ``[positions, head_dim / 2]``."""
    inverse_D2 = inverse_frequencies(rope, head_dim)
    angles = torch.outer(torch.arange(positions, dtype=torch.float64), inverse_D2)
    scale = attention_scale(rope)
    cos, sin = angles.cos() * scale, angles.sin() * scale
    return cos.float().to(device), sin.float().to(device)


def inverse_frequencies(rope: RopeConfig, head_dim: int) -> Tensor:
    """Radians that each pair turns in one position, float64 ``[head_dim / 2]``.

    ``linear`` is Chen et al. 2023 (position interpolation): all positions divided by ``factor``.
    """
    pairs = torch.arange(0, head_dim, 2, dtype=torch.float64)
    # Rounded as in training: at the far end of a long context the rounding of a frequency, times
    # the position, can be seen in the angle.
    inverse = (1.0 / (rope.theta ** (pairs.float() / head_dim))).double()
    if rope.freq_factors is not None:
        inverse = inverse / torch.tensor(rope.freq_factors, dtype=torch.float64)
    if rope.kind == "linear":
        return inverse / rope.factor
    if rope.kind == "llama3":
        return _llama3(rope, inverse)
    if rope.kind == "yarn":
        return _yarn(rope, inverse, head_dim)
    return inverse


def attention_scale(rope: RopeConfig) -> float:
    """What rotated vectors are multiplied by: not 1 for yarn alone (Peng et al. 2023, 3.4).

    ``mscale`` and ``mscale_all_dim`` are DeepSeek-V2's: the first's factor over the second's.
    """
    if rope.kind != "yarn":
        return 1.0
    if rope.attention_factor is not None:
        return rope.attention_factor
    if rope.mscale and rope.mscale_all_dim:
        return _mscale(rope.factor, rope.mscale) / _mscale(rope.factor, rope.mscale_all_dim)
    return _mscale(rope.factor, 1.0)


def _mscale(factor: float, mscale: float) -> float:
    return 1.0 if factor <= 1 else 0.1 * mscale * math.log(factor) + 1.0


def _llama3(rope: RopeConfig, inverse: Tensor) -> Tensor:
    """Llama 3.1 (``apply_scaling`` of its reference code): waves that turn less than
    ``low_freq_factor`` times within the original context are stretched by ``factor``, those that
    turn more than ``high_freq_factor`` times are kept; a blend between."""
    assert rope.original_positions is not None
    wavelength = 2 * math.pi / inverse
    low, high = rope.low_freq_factor, rope.high_freq_factor
    blend = (rope.original_positions / wavelength - low) / (high - low)
    blend = blend.clamp(0.0, 1.0)
    return (1 - blend) * inverse / rope.factor + blend * inverse


def _yarn(rope: RopeConfig, inverse: Tensor, head_dim: int) -> Tensor:
    """Peng et al. 2023 (YaRN), 3.2: a ramp over the dimensions between turning ``beta_fast`` and
    ``beta_slow`` times within the original context."""
    assert rope.original_positions is not None
    fast = _turning_dimension(rope, rope.beta_fast, head_dim)
    slow = _turning_dimension(rope, rope.beta_slow, head_dim)
    if rope.truncate:
        fast, slow = math.floor(fast), math.ceil(slow)
    fast, slow = max(fast, 0), min(slow, head_dim - 1)
    if fast == slow:
        slow += 0.001
    index = torch.arange(head_dim // 2, dtype=torch.float64)
    ramp = ((index - fast) / (slow - fast)).clamp(0.0, 1.0)
    return inverse / rope.factor * ramp + inverse * (1 - ramp)


def _turning_dimension(rope: RopeConfig, turns: float, head_dim: int) -> float:
    """The (fractional) pair that turns so many times within the original context."""
    assert rope.original_positions is not None
    ratio = rope.original_positions / (turns * 2 * math.pi)
    return head_dim * math.log(ratio) / (2 * math.log(rope.theta))
