"""An opened model: everything that can be known of it without loading its weights."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from sapwood.constrain.vocabulary import Vocabulary

from ..model_config import ModelConfig
from ..tokenizer import Tokenizer
from .weights import Weight


@dataclass(frozen=True, kw_only=True)
class Checkpoint:
    """A model's files, opened: configuration read, tensors checked and mapped, nothing loaded.

    ``eos_ids`` is the union of all ends that the files name. ``generation_defaults`` are sampling
    parameters that the model's makers advise, under the names of ``SamplingParams``.
    ``chat_templates`` are Jinja sources by name. ``quantization`` says how matrices are stored.
    """

    path: Path
    name: str
    config: ModelConfig
    eos_ids: frozenset[int]
    generation_defaults: Mapping[str, float] = field(default_factory=dict)
    chat_templates: Mapping[str, str] = field(default_factory=dict)
    quantization: str
    open_tokenizer: Callable[[], Tokenizer] = field(repr=False)
    open_weights: Callable[[], Mapping[str, Weight]] = field(repr=False)

    @functools.cached_property
    def tokenizer(self) -> Tokenizer:
        """Built when first used: a process that needs no text does not pay for it."""
        return self.open_tokenizer()

    @property
    def vocabulary(self) -> Vocabulary:
        """The tokenizer's, with all of the model's end tokens."""
        return self.tokenizer.vocabulary._replace(eos_ids=self.eos_ids)

    @property
    def chat_template(self) -> str | None:
        """The source of the chat template that is used where none is named."""
        return self.chat_templates.get("default")

    def weights(self) -> Mapping[str, Weight]:
        """Every tensor by its canonical name: exactly those of ``expected_tensors``."""
        return self.open_weights()
