"""What the server counts and times, for Prometheus.

Nothing in here may end a request: labels come from closed sets, and observing does not fail.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from .messages import StepStats

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_BETWEEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.2, 0.5, 1, 5)

_GAUGES = {
    "running": ("sapwood_running_requests", "Samples in the running batch."),
    "waiting": ("sapwood_waiting_requests", "Samples that wait to be run."),
    "pages_total": ("sapwood_kv_pages", "Pages of the KV pool."),
    "pages_used": ("sapwood_kv_pages_used", "Pages that running samples hold."),
    "pages_evictable": ("sapwood_kv_pages_evictable", "Cached pages that may be evicted."),
    "pages_free": ("sapwood_kv_pages_free", "Pages that hold nothing."),
}
_COUNTERS = {
    "steps": ("sapwood_steps", "Forward passes."),
    "computed_prompt_tokens": ("sapwood_prefix_misses_tokens", "Prompt tokens computed."),
    "cached_prompt_tokens": ("sapwood_prefix_hits_tokens", "Prompt tokens found in the cache."),
    "output_tokens": ("sapwood_output_tokens", "Tokens generated."),
    "pushed_back": ("sapwood_pushed_back", "Running samples pushed back for lack of memory."),
    "evicted_pages": ("sapwood_evicted_pages", "Pages evicted from the cache."),
    "constrained_draws": ("sapwood_constrained_draws", "Draws under a constraint."),
    "forced_tokens": ("sapwood_forced_tokens", "Tokens that a constraint added without a draw."),
    "vetoed_tokens": ("sapwood_vetoed_tokens", "Draws that a constraint took back."),
    "closed_tokens": ("sapwood_closed_tokens", "Tokens chosen to end within a budget."),
    "drafted_tokens": ("sapwood_drafted_tokens", "Tokens computed on a guess."),
    "accepted_tokens": ("sapwood_accepted_tokens", "Guessed tokens that were right."),
}


class Metrics:
    """A server's figures, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self._worker = _WorkerState()
        self.registry.register(self._worker)
        self._requests = self._counter("requests", "Requests accepted.")
        self._samples = self._counter("samples", "Samples accepted.")
        self._prompt = self._counter("prompt_tokens", "Prompt tokens of accepted requests.")
        self._cached = self._counter(
            "prompt_tokens_cached", "Prompt tokens of finished requests found in the cache."
        )
        self._ended = self._counter("ended", "Prompts that ended, by how.", "reason")
        self._refused = self._counter("refused", "Requests refused, by why.", "reason")
        self._step_seconds = self._counter("step_seconds", "Time spent in steps.")
        self._queue = self._histogram("queue_seconds", "Time before a sample first runs.", _LATENCY)
        self._ttft = self._histogram(
            "time_to_first_token_seconds", "Time to a sample's first token.", _LATENCY
        )
        self._between = self._histogram(
            "inter_token_seconds", "Time between a sample's tokens.", _BETWEEN
        )
        self._e2e = self._histogram("request_seconds", "Time to the end of a request.", _LATENCY)

    def opened(self, prompt_tokens: int, samples: int) -> None:
        """A request was accepted."""
        self._requests.inc()
        self._samples.inc(samples)
        self._prompt.inc(prompt_tokens)

    def first_token(self, seconds: float) -> None:
        """A sample's first token came, ``seconds`` after the request."""
        self._ttft.observe(seconds)

    def next_tokens(self, seconds: float, count: int) -> None:
        """``count`` more tokens came, ``seconds`` after those before."""
        self._between.observe(seconds / count, count)

    def finished(self, seconds: float, cached: int) -> None:
        """All samples of a prompt finished; ``cached`` of its tokens were not computed."""
        self._e2e.observe(seconds)
        self._cached.inc(cached)

    def ended(self, how: str) -> None:
        """A prompt ended: a finish reason, ``refused`` or ``cancelled``."""
        self._ended.labels(how).inc()

    def refused(self, reason: str) -> None:
        """A request was answered by an error; ``reason`` is its code."""
        self._refused.labels(reason).inc()

    def step(self, stats: StepStats) -> None:
        """The worker's state after a step."""
        self._worker.stats = stats
        self._step_seconds.inc(stats.step_seconds)
        for seconds in stats.queue_seconds:
            self._queue.observe(seconds)

    def render(self) -> bytes:
        """All figures in Prometheus' text format."""
        return generate_latest(self.registry)

    def _counter(self, name: str, help: str, *labels: str) -> Counter:
        return Counter(f"sapwood_{name}", help, labels, registry=self.registry)

    def _histogram(self, name: str, help: str, bounds: tuple[float, ...]) -> Histogram:
        histogram = Histogram(f"sapwood_{name}", help, bounds)
        self.registry.register(histogram)
        return histogram


class Histogram(Collector):
    """Counts values by size, cheaply: it is told of every token. Not for several threads."""

    def __init__(self, name: str, help: str, bounds: tuple[float, ...]) -> None:
        self._name = name
        self._help = help
        self._bounds = bounds
        self._counts = [0] * (len(bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        """Counts a value."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterable[Metric]:
        """For the registry."""
        labels = [*map(str, map(float, self._bounds)), "+Inf"]
        buckets = list(zip(labels, accumulate(self._counts), strict=True))
        yield HistogramMetricFamily(self._name, self._help, buckets=buckets, sum_value=self._sum)


class _WorkerState(Collector):
    """The worker's own counters, as last reported: they are read when somebody scrapes."""

    def __init__(self) -> None:
        self.stats = StepStats()

    def collect(self) -> Iterable[Metric]:
        for field, (name, help) in _GAUGES.items():
            yield GaugeMetricFamily(name, help, value=getattr(self.stats, field))
        for field, (name, help) in _COUNTERS.items():
            yield CounterMetricFamily(name, help, value=getattr(self.stats, field))
