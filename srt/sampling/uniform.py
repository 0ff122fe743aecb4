"""Random numbers without a generator: a hash of what the number is for."""

from __future__ import annotations

_MASK = (1 << 64) - 1
_GOLDEN = 0x9E3779B97F4A7C15


def uniform(seed: int, choice: int, position: int, attempt: int = 0) -> float:
    """A number in [0, 1) for one sampled token, uniform over seeds, choices and positions.

    The same arguments give the same number on any machine, in any batch. Each argument is mixed in
    with the finaliser of SplitMix64 (Steele, Lea, Flood 2014); the top 53 bits make the number.
    """
    state = _mix(seed)
    for part in (choice, position, attempt):
        state = _mix(state + _GOLDEN * (part + 1))
    return (state >> 11) * 2.0**-53


def _mix(value: int) -> int:
    value = (value + _GOLDEN) & _MASK
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & _MASK
    return value ^ (value >> 31)
