"""Rows that are held to constraints, on the stand: masks, vetoes, forced tokens, budgets."""

from __future__ import annotations

from typing import Any

import pytest

from sapwood.srt.messages import Finish
from tests.fakes.slots import END, SlotConstraints, SlotMatcher, slots
from tests.fakes.stand import Stand

FREE = "3 4 5 6 7 8 9"


def stand(**options: Any) -> Stand:
    constraints = options.pop("constraints", None) or SlotConstraints()
    return Stand(constraints=constraints, **options)


def test_what_is_drawn_is_allowed_and_ends_with_the_grammar() -> None:
    result = stand().generate("a", [1, 2], constraint=slots(FREE, "40 41", FREE))
    assert len(result.ids) == 4
    assert all(token in range(3, 10) for token in (result.ids[0], result.ids[2]))
    assert result.ids[1] in (40, 41)
    assert result.finish == Finish("stop", END)


def test_c031_free_and_constrained_rows_share_steps_and_change_nothing_for_each_other() -> None:
    alone = {
        name: stand().generate(name, [1, 2, 3], max_tokens=6, seed=9, constraint=constraint).ids
        for name, constraint in (("free", None), ("held", slots(FREE, FREE, FREE)))
    }
    both = stand()
    both.submit("free", [1, 2, 3], max_tokens=6, seed=9)
    both.submit("held", [1, 2, 3], max_tokens=6, seed=9, constraint=slots(FREE, FREE, FREE))
    both.run()
    assert both.results["free", 0].ids == alone["free"]
    assert both.results["held", 0].ids == alone["held"]
    assert any(len(batch.rows) == 2 for batch in both.runner.steps)


def test_forced_tokens_take_no_step_of_their_own() -> None:
    held = stand()
    result = held.generate(
        "a", [1, 2], constraint=slots("20", "21", FREE, "22", "23", "24", FREE, "25")
    )
    assert [result.ids[i] for i in (0, 1, 3, 4, 5, 7)] == [20, 21, 22, 23, 24, 25]
    assert result.ids[-1] == END
    assert len(held.runner.steps) == 2  # one for each draw
    assert held.stats.forced_tokens == 7
    assert held.stats.constrained_draws == 2
    assert held.stats.computed_prompt_tokens == 2
    assert held.stats.output_tokens == len(result.ids) == 9


def test_a_wholly_forced_output_takes_no_step_at_all() -> None:
    held = stand()
    result = held.generate("a", [1, 2], constraint=slots("20", "21"))
    assert result.ids == [20, 21, END]
    assert result.finish == Finish("stop", END)
    assert not held.runner.steps


def test_forced_tokens_are_drawn_where_logprobs_are_asked_for() -> None:
    held = stand()
    result = held.generate("a", [1, 2], logprobs=0, constraint=slots("20", FREE, "21"))
    assert len(result.ids) == 4
    assert sum(len(item.logprobs or []) for item in result.items) == 4
    assert held.stats.forced_tokens == 0


def test_a_vetoed_token_is_drawn_again() -> None:
    held = stand()
    vetoes = "3 4 5 6 7 8"
    result = held.generate("a", [1], constraint=slots(FREE, FREE, vetoes=vetoes))
    assert result.ids == [9, 9, END]
    assert held.stats.vetoed_tokens > 0


def test_after_many_vetoes_the_known_way_is_taken() -> None:
    places = " ".join(map(str, range(3, 60)))
    vetoes = " ".join(map(str, range(3, 59)))
    held = stand()
    result = held.generate("a", [1], logprobs=0, constraint=slots(places, vetoes=vetoes))
    assert result.ids[0] == 59
    assert [entry.id for item in result.items for entry in item.logprobs or []] == result.ids


@pytest.mark.parametrize("budget", [4, 5, 9])
def test_an_output_is_closed_within_its_budget(budget: int) -> None:
    result = stand().generate("a", [1], max_tokens=budget, constraint=slots(FREE, FREE, FREE))
    assert len(result.ids) == 4
    assert result.finish == Finish("stop", END)


def test_a_budget_that_is_too_small_is_refused_with_the_number() -> None:
    refused = stand().generate("a", [1], max_tokens=3, constraint=slots(FREE, FREE, FREE)).refused
    assert refused is not None
    assert (refused.status, refused.param, refused.code) == (400, "max_tokens", "budget_too_small")
    assert "has 4 tokens, and the budget is 3" in refused.message


def test_an_output_of_no_known_length_is_refused_unless_it_may_be_cut(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(SlotMatcher, "completion", lambda self: [])
    held = stand()
    refused = held.generate("a", [1], constraint=slots(FREE)).refused
    assert refused is not None
    assert (refused.status, refused.code) == (400, "constraint_refused")
    assert 'on_budget "cut"' in refused.message
    taken = held.generate("b", [1], on_budget="cut", constraint=slots(FREE))
    assert taken.finish == Finish("stop", END)


def test_an_output_may_be_cut_where_that_is_asked_for() -> None:
    result = stand().generate(
        "a", [1], max_tokens=2, on_budget="cut", constraint=slots(FREE, FREE, FREE)
    )
    assert len(result.ids) == 2
    assert result.finish == Finish("length")


@pytest.mark.parametrize("options", [{"ignore_eos": True}, {"min_tokens": 20}])
def test_c025_a_finished_grammar_is_not_held_open(options: dict[str, Any]) -> None:
    result = stand().generate("a", [1], max_tokens=30, constraint=slots(FREE, "20"), **options)
    assert result.ids[1] == 20
    assert len(result.ids) <= 3
    assert result.finish is not None
    assert result.finish.reason == "stop"


def test_c034_a_stop_string_in_forced_text_ends_the_output() -> None:
    # Token t is the character 32 + t.
    result = stand().generate(
        "a",
        [1],
        stop=(chr(32 + 21) + chr(32 + 22),),
        constraint=slots(FREE, "20", "21", "22", "23"),
    )
    assert result.ids[1:] == [20, 21, 22]
    assert result.finish == Finish("stop", chr(32 + 21) + chr(32 + 22))


def test_a_stop_string_in_what_must_come_first_ends_the_output_at_once() -> None:
    held = stand()
    result = held.generate("a", [1], stop=(chr(32 + 20),), constraint=slots("20", FREE))
    assert result.ids == [20]
    assert not held.runner.steps


def test_push_back_changes_nothing() -> None:
    constraint = slots(*[FREE, "20", "21"] * 12)
    alone = [
        stand().generate(str(i), [1, i + 2], seed=i, max_tokens=99, constraint=constraint).ids
        for i in range(6)
    ]
    crowded = stand(pages=60, reserve_tokens=0)
    for i in range(6):
        crowded.submit(str(i), [1, i + 2], seed=i, max_tokens=50, constraint=constraint)
    crowded.run()
    assert crowded.stats.pushed_back > 0
    assert [crowded.results[str(i), 0].ids for i in range(6)] == alone


def test_samples_of_one_request_have_matchers_of_their_own() -> None:
    held = stand()
    held.submit("a", [1, 2], choices=3, constraint=slots(FREE, FREE, FREE))
    held.run()
    outputs = [held.results["a", i].ids for i in range(3)]
    assert len({tuple(ids) for ids in outputs}) > 1
    assert all(len(ids) == 4 for ids in outputs)


def test_what_an_earlier_epoch_produced_is_followed() -> None:
    held = stand()
    constraint = slots(FREE, "20", FREE)
    held.submit("a", [1, 2], epoch=1, output_ids=[5, 20], constraint=constraint)
    held.run()
    assert len(held.results["a", 0].ids) == 2
    assert held.results["a", 0].items[0].index == 2


def test_a_refusal_names_the_place_and_disturbs_nobody() -> None:
    held = stand()
    held.submit("bad", [1], constraint=slots(FREE, refused=True))
    held.submit("good", [1], constraint=slots(FREE))
    held.run()
    refused = held.results["bad", 0].refused
    assert refused is not None
    assert (refused.status, refused.param, refused.code) == (400, "/at", "constraint_refused")
    assert len(held.results["good", 0].ids) == 2


def test_others_go_on_while_a_constraint_is_compiled() -> None:
    constraints = SlotConstraints(held_back=True)
    held = stand(constraints=constraints)
    held.submit("held", [1], constraint=slots(FREE))
    assert not held.core.busy
    assert held.core.patience == pytest.approx(0.001)
    held.submit("free", [1], max_tokens=3)
    while held.core.busy:
        held.step()
    assert held.results["free", 0].ended
    assert not held.results["held", 0].ended
    constraints.compile()
    assert held.core.busy
    held.run()
    assert len(held.results["held", 0].ids) == 2
    assert held.core.patience is None


def test_a_sample_that_waits_for_its_constraint_can_be_aborted() -> None:
    constraints = SlotConstraints(held_back=True)
    held = stand(constraints=constraints)
    held.submit("a", [1], choices=2, constraint=slots(FREE))
    held.abort("a")
    held.run()
    assert [held.results["a", i].finish for i in range(2)] == [Finish("abort")] * 2
    assert held.core.patience is None


def test_a_constraint_that_takes_too_long_is_refused() -> None:
    constraints = SlotConstraints(held_back=True)
    held = stand(constraints=constraints)
    held.submit("a", [1], constraint=slots(FREE))
    constraints.late = True
    held.run()
    refused = held.results["a", 0].refused
    assert refused is not None
    assert refused.code == "constraint_timeout"


def test_a_matcher_that_gives_up_is_replaced_by_the_known_ending() -> None:
    constraints = SlotConstraints(fails_at=1)
    held = stand(constraints=constraints)
    held.submit("a", [1], constraint=slots(FREE, "30 31", "32 33"))
    held.submit("b", [1], max_tokens=3)
    held.run()
    assert held.results["a", 0].ids[1:] == [30, 32, END]
    assert held.results["a", 0].finish == Finish("stop", END)
    assert len(held.results["b", 0].ids) == 3
    assert "gives up" in constraints.troubles[0]


def test_where_no_constraint_can_be_had_one_is_refused() -> None:
    refused = Stand().generate("a", [1], constraint=slots(FREE)).refused
    assert refused is not None
    assert refused.status == 400
