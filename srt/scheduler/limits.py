"""What a submission must keep to, so that whatever is accepted can run to its end."""

from __future__ import annotations

from ..errors import RequestError
from ..messages import Submit


class Limits:
    """Of one model and pool. ``pool_tokens`` is what the whole pool holds, in whole pages.

    A request alone in the pool can always run to its end: nothing is accepted whose KV would need
    more than all pages. ``max_tokens`` that reach the end of the context, or ``None``, mean as many
    as there is room for, and are cut to the context and the pool. A number that the context has
    room for and the pool has not is refused.
    """

    def __init__(self, context_length: int, pool_tokens: int, max_waiting: int) -> None:
        self.context_length = context_length
        self.pool_tokens = pool_tokens
        self.max_waiting = max_waiting

    def end(self, submit: Submit, waiting: int) -> int:
        """The number of tokens at which the sample ends for its length.

        ``waiting`` counts the samples that wait and for which there is no slot.
        Raises ``RequestError`` for one that is empty, can never fit, or finds the queue full.
        """
        prompt = len(submit.prompt_ids)
        self._check_prompt(prompt, submit.params.max_tokens)
        end = self._end(prompt, submit.params.max_tokens)
        if max(prompt, end - 1) > self.pool_tokens:
            raise RequestError(
                f"{prompt} tokens of prompt and {end - prompt} of output need more KV than the "
                f"pool's {self.pool_tokens} tokens",
                param="max_tokens",
                code="kv_pool_exceeded",
            )
        if waiting >= self.max_waiting:
            raise RequestError(
                f"{waiting} requests are waiting, and no more may; try again later",
                code="queue_full",
                status=503,
            )
        return end

    def _check_prompt(self, prompt: int, max_tokens: int | None) -> None:
        if prompt == 0:
            raise RequestError("the prompt is empty", param="prompt")
        least = prompt if max_tokens == 0 else prompt + 1
        if least > self.context_length:
            raise RequestError(
                f"the prompt has {prompt} tokens, and the context of this model is "
                f"{self.context_length} tokens, prompt and output together",
                param="prompt",
                code="context_length_exceeded",
            )
        if prompt > self.pool_tokens:
            raise RequestError(
                f"the prompt has {prompt} tokens, and the KV pool holds {self.pool_tokens}",
                param="prompt",
                code="kv_pool_exceeded",
            )

    def _end(self, prompt: int, max_tokens: int | None) -> int:
        if max_tokens is None or prompt + max_tokens >= self.context_length:
            # The last token of the output needs no KV.
            return max(min(self.context_length, self.pool_tokens + 1), prompt)
        return prompt + max_tokens
