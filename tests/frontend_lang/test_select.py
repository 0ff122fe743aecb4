"""``select`` and its three methods, on set log-probabilities."""

from __future__ import annotations

from typing import Any

import pytest

import sapwood as sw
from sapwood.frontend_lang.chats import shared

SHORT, LONG = "Paris", "Antidisestablishmentarianism"
SCORES = {SHORT: [-0.9], LONG: [-6.0, 0, 0, 0, 0, 0, 0, 0]}


def chosen(choices: list[str], scores: Any, method: Any = None, **script: Any) -> Any:
    @sw.function
    def program(s: sw.State) -> Any:
        s += "The answer is " + sw.select("x", choices, choices_method=method) + "."
        return s["x"]

    state = program.run(backend=sw.Scripted({"x": scores}, **script))
    assert state.text() == f"The answer is {state['x']}."
    return state["x"], state.get_meta_info("x")


def test_c085_the_mean_prefers_long_tails_and_greedy_does_not() -> None:
    """C085: eight tokens, seven of which are sure, against one that is likelier than the head."""
    assert chosen([SHORT, LONG], SCORES)[0] == LONG
    text, meta = chosen([SHORT, LONG], SCORES, sw.greedy_token_selection)
    assert text == SHORT
    assert meta["normalized_prompt_logprobs"] == [-0.9, -0.75]
    assert meta["greedy_logprob_matrix"] == [[-0.9] * 8, [-6.0, *[0.0] * 7]]
    alone = {SHORT: [-3.0], LONG: [-6.5, 0, 0, 0, 0, 0, 0, 0]}
    text, meta = chosen([SHORT, LONG], SCORES, sw.unconditional_likelihood_normalized, alone=alone)
    assert text == SHORT
    assert meta["normalized_unconditional_prompt_logprobs"] == pytest.approx([2.1, 0.0625])


@pytest.mark.parametrize("method", [sw.token_length_normalized, sw.greedy_token_selection, None])
def test_c085_ties_go_to_the_first_and_scores_keep_their_order(method: Any) -> None:
    text, meta = chosen(["b", "a", "c"], {"a": -1.0, "b": -1.0, "c": -2.0}, method)
    assert text == "b"
    assert meta["normalized_prompt_logprobs"] == [-1.0, -1.0, -2.0]
    assert chosen(["only"], {"only": -9.0}, method)[0] == "only"


def test_c085_one_choice_is_the_beginning_of_another() -> None:
    """C085: the shorter one competes by its own mean where it has ended."""
    longer = [("yes", -1.0), (", of", -0.1), (" course", -0.1)]
    likely: Any = {"yes": [("yes", -1.0)], "yes, of course": longer}
    unlikely: Any = {**likely, "yes, of course": [longer[0], (", of", -4.0), longer[2]]}
    for scores, want in ((likely, "yes, of course"), (unlikely, "yes")):
        assert chosen(list(scores), scores, sw.greedy_token_selection)[0] == want
        assert chosen(list(scores), scores)[0] == want


def test_c085_what_is_refused() -> None:
    for choices, what in (
        ([], "has no choices"),
        (None, "needs a list"),
        ("ab", "needs a list"),
        (["a", ""], "choice 1 of select.* is empty"),
        (["a", "b", "a"], "'a' twice"),
    ):
        with pytest.raises(ValueError, match=what):
            sw.select("x", choices)
    with pytest.raises(TypeError, match="no text"):
        sw.select("x", [1])  # type: ignore[list-item]
    with pytest.raises(ValueError, match="temperature must be 0"):
        sw.select("x", ["a"], 0.5)
    with pytest.raises(ValueError, match="no choices"):
        sw.gen("x", choices=[])


def test_gen_with_choices_is_select() -> None:
    @sw.function
    def program(s: sw.State) -> None:
        s += sw.gen("x", choices=["a", "b"], choices_method=sw.greedy_token_selection)
        s += sw.select("y", ["c", "d"], method=sw.greedy_token_selection)

    state = program.run(backend=sw.Scripted({"x": "b", "y": "c"}))
    assert (state["x"], state["y"]) == ("b", "c")
    assert "greedy_logprob_matrix" in state.get_meta_info("x")


def test_what_prompts_share_leaves_each_a_token() -> None:
    assert shared([1, 2, 3], [[1, 2, 3, 4], [1, 2, 3]]) == 2
    assert shared([1, 2, 3], [[1, 2, 9], [1, 2, 3, 4]]) == 2
    assert shared([1, 2, 3], [[7], [1, 2, 3, 4]]) == 0
    assert shared([1, 2], [[1, 2, 3], [1, 2, 4]]) == 2
