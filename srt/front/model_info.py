"""What the front needs to know of the model that it serves."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field

from ..checkpoint import Checkpoint
from ..errors import RequestError


@dataclass(frozen=True, kw_only=True)
class ModelInfo:
    """A served model. ``vocab_size`` counts the ids that requests may name: those that both the
    tokenizer and the model have. ``created`` is a Unix time in seconds."""

    name: str
    context_length: int
    vocab_size: int
    created: int = 0
    defaults: Mapping[str, float] = field(default_factory=dict)
    path: str = ""
    architecture: str = ""
    quantization: str = ""

    @classmethod
    def of(
        cls,
        checkpoint: Checkpoint,
        *,
        created: int,
        context_length: int | None = None,
        served_name: str | None = None,
    ) -> ModelInfo:
        """From an opened checkpoint and what the command line says."""
        config = checkpoint.config
        return cls(
            name=served_name or checkpoint.name,
            context_length=config.context(context_length),
            vocab_size=min(config.vocab_size, checkpoint.tokenizer.vocab_size),
            created=created,
            defaults=checkpoint.generation_defaults,
            path=str(checkpoint.path),
            architecture=config.architecture,
            quantization=checkpoint.quantization,
        )

    @property
    def fingerprint(self) -> str:
        """OpenAI's ``system_fingerprint``: changes with the model that answers."""
        text = "\0".join((self.name, self.path, self.quantization, str(self.context_length)))
        return "fp_" + hashlib.sha256(text.encode()).hexdigest()[:12]

    def check_name(self, name: str | None) -> None:
        """``RequestError`` 404 unless a request means this model: by name, ``default``, or none."""
        if name is None or name in (self.name, "default"):
            return
        raise RequestError(
            f"the model {name!r} does not exist; this server has {self.name!r}",
            param="model",
            code="model_not_found",
            status=404,
        )
