"""When and why a sample ends, and what is reported of it."""

from __future__ import annotations

import pytest

from sapwood.srt.messages import Finish
from tests.fakes.stand import EOS, Stand


def scripted(ids: list[int], **options: object) -> Stand:
    """A stand on which request ``r`` draws these tokens."""
    return Stand(script={"r": ids}, **options)  # type: ignore[arg-type]


def tokens_of(text: str) -> list[int]:
    """Tokens that stand for printable ASCII in the stand's vocabulary."""
    return [ord(char) - 32 for char in text]


def test_end_of_sequence_counts_as_a_token() -> None:
    result = scripted([5, 6, EOS, 7]).generate("r", [1, 2], max_tokens=9)
    assert result.ids == [5, 6, EOS]
    assert result.finish == Finish("stop", EOS)


def test_first_token_is_the_end() -> None:
    result = scripted([EOS]).generate("r", [1], max_tokens=9)
    assert (result.ids, result.finish) == ([EOS], Finish("stop", EOS))


def test_c093_all_ends_of_sequence_count() -> None:
    """C093: the second of several ends the sample; ``ignore_eos`` covers all; with none, length."""
    ends = frozenset({EOS, 9})
    stand = scripted([5, 9, 7], eos=ends)
    assert stand.generate("r", [1, 2], max_tokens=9).finish == Finish("stop", 9)
    both = scripted([5, 9, EOS, 7], eos=ends).generate("r", [1], max_tokens=4, ignore_eos=True)
    assert (both.ids, both.finish) == ([5, 9, EOS, 7], Finish("length"))
    none = scripted([5, 9, EOS], eos=frozenset()).generate("r", [1], max_tokens=3)
    assert (none.ids, none.finish) == ([5, 9, EOS], Finish("length"))


def test_ignored_end_of_sequence() -> None:
    result = scripted([5, EOS, 7]).generate("r", [1, 2], max_tokens=5, ignore_eos=True)
    assert result.ids == [5, EOS, 7, 7, 7]
    assert result.finish == Finish("length")


def test_stop_token_ids() -> None:
    options = {"max_tokens": 5, "ignore_eos": True, "stop_token_ids": (7,)}
    result = scripted([5, EOS, 7]).generate("r", [1, 2], **options)
    assert (result.ids, result.finish) == ([5, EOS, 7], Finish("stop", 7))


@pytest.mark.parametrize("min_tokens", [0, 1, 2, 3])
def test_no_end_among_the_first_min_tokens(min_tokens: int) -> None:
    """A script draws what a sampler would not; the rule holds all the same."""
    result = scripted([EOS, EOS, 8, EOS]).generate("r", [1], max_tokens=9, min_tokens=min_tokens)
    assert len(result.ids) == {0: 1, 1: 2, 2: 4, 3: 4}[min_tokens]


def test_sampler_is_told_what_to_keep_from_being_drawn() -> None:
    stand = scripted([5])
    stand.submit("r", [1], max_tokens=4, min_tokens=2, stop_token_ids=(7,))
    banned = []
    while stand.core.busy:
        stand.step()
        row = stand.runner.steps[-1].rows[0]
        banned.append(row.request.banned_after(row.stop - 1))
    assert banned == [{EOS, 7}, {EOS, 7}, frozenset(), frozenset()]


def test_ignored_end_of_sequence_may_be_drawn_before_min_tokens() -> None:
    stand = scripted([5])
    stand.submit("r", [1], max_tokens=4, min_tokens=2, ignore_eos=True)
    stand.step()
    assert stand.runner.steps[-1].rows[0].request.banned_after(0) == frozenset()


def test_stop_string_over_two_tokens() -> None:
    """C037: the worker ends the sample, and no step is spent past the stop."""
    stand = scripted(tokens_of("AB#STOP?"))
    result = stand.generate("r", [1], max_tokens=20, stop=("XY", "STOP"))
    assert result.ids == tokens_of("AB#STOP")
    assert result.finish == Finish("stop", "STOP")
    assert stand.stats.steps == 7


def test_stop_string_before_min_tokens_is_passed_over() -> None:
    """C037"""
    stand = scripted(tokens_of("STOP-STOP"))
    result = stand.generate("r", [1], max_tokens=20, min_tokens=5, stop=("STOP",))
    assert result.ids == tokens_of("STOP-STOP")
    assert result.finish == Finish("stop", "STOP")


def test_stop_string_that_ends_with_min_tokens_counts() -> None:
    stand = scripted(tokens_of("STOP-STOP"))
    result = stand.generate("r", [1], max_tokens=20, min_tokens=4, stop=("STOP",))
    assert result.ids == tokens_of("STOP")


def test_special_token_is_no_part_of_a_stop_string_unless_it_is_text() -> None:
    """C037: token 0 is special, and is written as a blank."""
    ids = [*tokens_of("A"), EOS, *tokens_of("B"), *tokens_of("CC")]
    options = {"max_tokens": 4, "ignore_eos": True}
    skipped = scripted(ids).generate("r", [1], stop=("AB",), **options)
    assert skipped.finish == Finish("stop", "AB")
    shown = scripted(ids).generate("r", [1], stop=("AB",), skip_special_tokens=False, **options)
    assert shown.finish == Finish("length")
    blank = scripted(ids).generate("r", [1], stop=("A B",), skip_special_tokens=False, **options)
    assert blank.finish == Finish("stop", "A B")


def test_end_of_sequence_goes_before_a_stop_string() -> None:
    options = {"max_tokens": 4, "stop": (" ",), "skip_special_tokens": False}
    assert scripted([EOS]).generate("r", [1], **options).finish == Finish("stop", EOS)


def test_stop_goes_before_length() -> None:
    assert scripted([5, EOS]).generate("r", [1], max_tokens=2).finish == Finish("stop", EOS)
    stop = scripted(tokens_of("AB")).generate("r", [1], max_tokens=2, stop=("B",))
    assert stop.finish == Finish("stop", "B")


@pytest.mark.parametrize("budget", [4, 64])
@pytest.mark.parametrize("scores", [False, True])
def test_no_token_at_all(budget: int, scores: bool) -> None:
    """C061: 0 is a number, not "unset": the prompt is computed and scored, nothing is drawn."""
    stand = Stand(max_batched_tokens=budget)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    options = {"prompt_logprobs_from": 2} if scores else {}
    result = stand.generate("r", prompt, max_tokens=0, **options)
    assert (result.ids, result.finish) == ([], Finish("length"))
    assert len(result.items) == 1
    found = result.items[0].prompt_logprobs
    assert (found is None) != scores
    if found is not None:
        assert [each.id for each in found] == prompt[2:]
    assert stand.stats.computed_prompt_tokens == len(prompt)
    assert stand.stats.output_tokens == 0
    assert all(row.sample_from == row.stop for batch in stand.runner.steps for row in batch.rows)
    warm = stand.generate("again", prompt, max_tokens=0)
    assert warm.finish == Finish("length")
    assert warm.cached == len(prompt) - 1


@pytest.mark.parametrize("start", [0, 1, 2, 5, 8, 9, 10])
@pytest.mark.parametrize("budget", [2, 64])
@pytest.mark.parametrize("page_size", [1, 4])
def test_scores_of_the_prompt(start: int, budget: int, page_size: int) -> None:
    """C047: cold, chunked, and with the whole prompt cached, the scores are the same."""
    stand = Stand(max_batched_tokens=budget, page_size=page_size)
    prompt = [3, 1, 4, 1, 5, 9, 2, 6, 5]
    options = {"max_tokens": 2, "prompt_logprobs_from": start}
    results = [stand.generate(rid, prompt, **options) for rid in ("cold", "warm")]
    for result in results:
        found = result.items[0].prompt_logprobs
        assert found is not None
        assert [each.id for each in found] == prompt[start:]
        assert all(item.prompt_logprobs is None for item in result.items[1:])
        if start == 0:
            assert found[0].logprob is None
        assert all(each.logprob is not None for each in found[1:])
    assert results[0].items[0].prompt_logprobs == results[1].items[0].prompt_logprobs
    most = max(min(start - 1, len(prompt) - 1), 0)
    assert results[1].cached == most - most % page_size


def test_logprobs_of_the_output_go_with_its_tokens() -> None:
    result = scripted([5, 6, EOS]).generate("r", [1], max_tokens=9, logprobs=0)
    assert [[each.id for each in item.logprobs or []] for item in result.items] == [[5], [6], [0]]


@pytest.mark.parametrize("position", [0, 2])
def test_row_without_usable_logits_fails_alone(position: int) -> None:
    stand = Stand(fails={"bad": position})
    for rid in ("good", "bad", "other"):
        stand.submit(rid, [1, 2, 3], max_tokens=6, ignore_eos=True)
    stand.run()
    bad = stand.results["bad", 0]
    assert bad.finish == Finish("error", message="NaN")
    assert len(bad.ids) == position
    assert len(stand.results["good", 0].ids) == len(stand.results["other", 0].ids) == 6


def test_kv_of_a_failed_step_does_not_enter_the_tree() -> None:
    stand = Stand(fails={"bad": 0})
    stand.generate("bad", [1, 2, 3], max_tokens=6)
    assert stand.cache.n_free == stand.cache.n_total


@pytest.mark.parametrize("has", [1, 4])
def test_goes_on_from_the_output_of_an_earlier_epoch(has: int) -> None:
    whole = Stand().generate("r", [1, 2, 3], max_tokens=8, ignore_eos=True)
    stand = Stand()
    options = {"max_tokens": 8, "ignore_eos": True, "epoch": 1, "output_ids": whole.ids[:has]}
    rest = stand.generate("r", [1, 2, 3], **options)
    assert rest.ids == whole.ids[has:]
    assert rest.items[0].index == has
    assert all(item.epoch == 1 for item in rest.items)


def test_output_of_an_earlier_epoch_that_is_complete_ends_at_once() -> None:
    result = Stand().generate("r", [1, 2], max_tokens=2, epoch=1, output_ids=[5, 6])
    assert (result.ids, result.finish) == ([], Finish("length"))
    assert result.items[0].index == 2


def test_stop_string_that_began_in_an_earlier_epoch() -> None:
    """C037"""
    result = scripted(tokens_of("..OP!")).generate(
        "r", [1], max_tokens=20, stop=("STOP",), epoch=1, output_ids=tokens_of("ST")
    )
    assert result.finish == Finish("stop", "STOP")
    assert result.ids == tokens_of("OP")
