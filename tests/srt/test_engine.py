"""The engine in this process: generate, stream and score, from threads and event loops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sapwood import Engine, SamplingParams
from sapwood.srt.core import Core
from sapwood.srt.errors import LoadError, RequestError, UsageError
from tests.fakes.tiny import write_tiny

GREEDY = SamplingParams(temperature=0.0, max_tokens=8, ignore_eos=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(write_tiny(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def engine(folder: str) -> Iterator[Engine]:
    with Engine(folder, dtype="float32", kv_tokens=4000) as made:
        yield made


def test_prompts_are_texts_or_ids_alone_or_in_lists(engine: Engine) -> None:
    one = engine.generate("hello", GREEDY)
    assert (len(one.ids), one.finish.reason, one.prompt_tokens) == (8, "length", 5)
    assert engine.generate([104, 101, 108, 108, 111], GREEDY).ids == one.ids
    many = engine.generate(["hello", "world", "hello"], GREEDY)
    assert [each.ids for each in many] == [one.ids, many[1].ids, one.ids]
    assert many[0].cached_tokens == 4
    each_its_own = [GREEDY, SamplingParams(temperature=0.0, max_tokens=2, ignore_eos=True)]
    assert [len(c.ids) for c in engine.generate(["hello", "hello"], each_its_own)] == [8, 2]
    samples = engine.generate("hello", SamplingParams(n=3, max_tokens=4, seed=5, ignore_eos=True))
    assert [sample.index for sample in samples] == [0, 1, 2]
    assert len({tuple(sample.ids) for sample in samples}) > 1


def test_a_reported_seed_repeats_the_sample(engine: Engine) -> None:
    first = engine.generate("abc", SamplingParams(max_tokens=12, ignore_eos=True))
    params = SamplingParams(max_tokens=12, ignore_eos=True, seed=first.seed)
    assert engine.generate("abc", params).ids == first.ids


def test_a_stream_is_the_text_in_pieces(engine: Engine) -> None:
    whole = engine.generate("stream", GREEDY)
    pieces = list(engine.stream("stream", GREEDY))
    assert "".join(piece.text for piece in pieces) == whole.text
    assert [token for piece in pieces for token in piece.ids] == whole.ids
    assert [piece.finish for piece in pieces[:-1]] == [None] * (len(pieces) - 1)
    assert pieces[-1].finish == whole.finish


def test_leaving_a_stream_frees_its_pages(engine: Engine) -> None:
    endless = SamplingParams(max_tokens=400, ignore_eos=True)
    for _ in engine.stream("leave", endless):
        break
    engine.generate("x", GREEDY)  # a step later
    assert (engine.stats.running, engine.stats.pages_used) == (0, 0)


def test_everything_from_a_running_event_loop(engine: Engine) -> None:
    async def main() -> None:
        want = engine.generate(["one", "two"], GREEDY)
        got, pieces = await asyncio.gather(
            engine.agenerate(["one", "two"], GREEDY), _collected(engine, "one")
        )
        assert [each.ids for each in got] == [each.ids for each in want]
        assert "".join(pieces) == want[0].text
        scores = await engine.ascore("one", [" two"])
        assert scores[0].logprobs == pytest.approx(engine.score("one", [" two"])[0].logprobs)

    asyncio.run(main())


async def _collected(engine: Engine, prompt: str) -> list[str]:
    return [piece.text async for piece in engine.astream(prompt, GREEDY)]


def test_cancelling_a_task_cancels_its_request(engine: Engine) -> None:
    async def main() -> None:
        endless = SamplingParams(max_tokens=500, ignore_eos=True)
        task = asyncio.create_task(engine.agenerate("c", endless))
        await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await engine.agenerate("d", GREEDY)
        assert engine.stats.running == 0

    asyncio.run(main())


def test_many_threads_at_once(engine: Engine) -> None:
    want = engine.generate("threads", GREEDY).ids
    got: list[Any] = [None] * 12

    def work(i: int) -> None:
        got[i] = engine.generate("threads", GREEDY).ids

    threads = [threading.Thread(target=work, args=(i,)) for i in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert got == [want] * 12


def test_scores_are_the_log_probabilities_of_the_continuation(engine: Engine) -> None:
    scores = engine.score("question: ", ["yes", "no", "no way"])
    assert [score.ids for score in scores] == [list(b"yes"), list(b"no"), list(b"no way")]
    assert scores[2].logprobs[:2] == pytest.approx(scores[1].logprobs, abs=1e-4)
    assert scores[1].total == pytest.approx(sum(scores[1].logprobs))
    params = SamplingParams(temperature=0.0, max_tokens=1, logprobs=0, ignore_eos=True)
    best = engine.generate("question: ", params)
    assert best.logprobs is not None
    [same] = engine.score("question: ", [best.ids])
    assert same.logprobs[0] == pytest.approx(best.logprobs[0].logprob, abs=1e-4)
    with pytest.raises(RequestError, match="adds no token"):
        engine.score("question: ", [""])


def test_what_is_wrong_is_said_where_it_was_asked(engine: Engine, folder: str) -> None:
    with pytest.raises(RequestError, match="temperature"):
        engine.generate("x", SamplingParams(temperature=9.0))
    with pytest.raises(RequestError, match="max_tokens is -1"):
        engine.generate("x", SamplingParams(max_tokens=-1))
    with pytest.raises(RequestError, match="512"):
        engine.generate([5] * 600, GREEDY)
    with pytest.raises(RequestError, match="-1"):
        engine.generate([5, -1], GREEDY)
    with pytest.raises(RequestError, match="empty"):
        engine.generate("", GREEDY)
    with pytest.raises(ValueError, match="2 sets of parameters for 1 prompts"):
        engine.generate(["x"], [GREEDY, GREEDY])
    with pytest.raises(RequestError, match="template"):
        engine.generate([{"role": "user", "content": "x"}], GREEDY)
    with pytest.raises(TypeError, match="page_sise"):
        Engine(folder, page_sise=4)
    with pytest.raises(UsageError, match="page-size"):
        Engine(folder, page_size=0)
    for wrong in ("x", float("inf")):
        with pytest.raises(UsageError, match="kv-memory"):
            Engine(folder, kv_memory=wrong)
    with pytest.raises(LoadError, match="nowhere"):
        Engine("/nowhere/model.gguf")


def test_one_of_many_that_fails_is_raised_and_the_others_end(engine: Engine) -> None:
    with pytest.raises(RequestError, match="context"):
        engine.generate(["fine", [5] * 600], GREEDY)
    engine.generate("x", GREEDY)
    assert engine.stats.running == 0


def test_a_flush_empties_the_cache(engine: Engine) -> None:
    engine.generate("flushed", GREEDY)
    assert engine.generate("flushed", GREEDY).cached_tokens == 6
    assert engine.flush_cache()
    assert engine.generate("flushed", GREEDY).cached_tokens == 0


def test_salts_share_nothing(engine: Engine) -> None:
    engine.generate("salted prompt", GREEDY, cache_salt="a")
    assert engine.generate("salted prompt", GREEDY, cache_salt="b").cached_tokens == 0
    assert engine.generate("salted prompt", GREEDY, cache_salt="a").cached_tokens == 12


def test_two_engines_in_one_process_and_one_after_the_other(folder: str) -> None:
    with Engine(folder, dtype="float32", kv_tokens=600) as first:
        want = first.generate("twice", GREEDY).ids
        with Engine(folder, dtype="float32", kv_tokens=600) as second:
            assert second.generate("twice", GREEDY).ids == want
        assert first.generate("twice", GREEDY).ids == want
    first.shutdown()
    with pytest.raises(RequestError, match="shut down"):
        first.generate("twice", GREEDY)
    with Engine(folder, dtype="float32", kv_tokens=600) as third:
        assert third.generate("twice", GREEDY).ids == want


def test_a_failing_step_is_raised_by_whoever_waits(
    folder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Engine(folder, dtype="float32", kv_tokens=600) as engine:
        monkeypatch.setattr(Core, "step", _fails)
        with pytest.raises(RequestError, match="out of luck"):
            engine.generate("x", GREEDY)
        with pytest.raises((RequestError, RuntimeError), match="out of luck"):
            engine.generate("y", GREEDY)


def _fails(core: Core) -> Any:
    raise RuntimeError("out of luck")


def test_the_default_model_answers_and_a_second_turn_hits_the_first(
    default_model_path: Path,
) -> None:
    """The next turn of a chat finds the whole first turn, its answer included, in the tree."""
    with Engine(str(default_model_path), dtype="float32", kv_tokens=3000) as engine:
        params = SamplingParams(temperature=0.0, max_tokens=24)
        chat = [{"role": "user", "content": "What is the capital of France?"}]
        first = engine.generate(chat, params)
        assert "Paris" in first.text
        assert first.finish.reason == "stop"
        chat += [
            {"role": "assistant", "content": first.text},
            {"role": "user", "content": "And of Italy?"},
        ]
        second = engine.generate(chat, params)
        assert second.cached_tokens >= first.prompt_tokens + len(first.ids) - 1
