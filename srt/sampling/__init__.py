"""From logits to tokens: repeatable, in a documented order of operations."""

from .logprobs import LogprobRows as LogprobRows
from .logprobs import top_logprobs as top_logprobs
from .sampler import Draw as Draw
from .sampler import Sampler as Sampler
from .uniform import uniform as uniform
