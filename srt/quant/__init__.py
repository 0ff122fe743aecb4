"""Weight quantisation on the CPU: how ``--quantization`` becomes products of a model."""

from .quantization import Quantization, quantization

__all__ = ["Quantization", "quantization"]
