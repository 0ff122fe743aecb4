"""Decoder-only transformers: one implementation, parameterised by configuration."""

from .decoder import Decoder as Decoder
from .dtype import model_dtype as model_dtype
from .loading import load_weights as load_weights
