"""``trace``: a program's tree, without a model."""

from __future__ import annotations

from dataclasses import dataclass

import sapwood as sw


@dataclass
class City:
    name: str
    people: int
    tags: list[str]


def test_a_tree_of_what_would_be_sent() -> None:
    @sw.function
    def inner(s: sw.State) -> None:
        s += "inside"

    @sw.function
    def program(s: sw.State, question: str, times: int = 2) -> None:
        s += sw.system("Be brief.")
        s += sw.user(f"Question: {question}?")
        s += sw.assistant(sw.gen("city", json_schema=City, max_tokens=9))
        forks = s.fork(times)
        forks += lambda i: sw.user(f"{i} {s['city'].name}") + sw.assistant(sw.gen("x"))
        forks.join()
        s += sw.user(s["x"][1]) + sw.assistant(sw.select("y", ["a", "b"]))
        if s["y"] == "a":
            s += sw.user("It is a.")
        inner.run()

    tree = str(sw.trace(program))
    assert tree.splitlines()[:4] == [
        "program",
        "  system",
        "    'Be brief.'",
        "  user",
    ]
    assert "    'Question: {question}?'" in tree
    assert "    gen city (" in tree
    assert "max_tokens=9" in tree
    assert "  fork 2\n    branch 0\n      user\n        '0 {city}'\n" in tree
    assert "    branch 1\n      user\n        '1 {city}'\n" in tree
    assert "  join\n  user\n    '{x}'\n" in tree
    assert "    select y: 'a' | 'b'\n" in tree
    assert "'It is a.'" in tree
    assert "inside" in tree
    assert "'Question: why?'" in str(program.trace("why"))
    assert "fork 3" in str(program.trace(times=3))


def test_native_async_programs_and_ends_by_errors() -> None:
    @sw.function
    async def program(s: sw.State, number: str) -> None:
        s += "x" + sw.gen_int("n")
        s += str(int(await s.aget("n")) + 1)
        s += str(int(number))

    traced = sw.trace(program)
    assert "    'x'" not in str(traced)
    assert "  'x'\n  gen n" in str(traced)
    assert "  '1'" in str(traced)
    assert isinstance(traced.error, ValueError)
    assert "'5'" in str(sw.trace(program, number="5"))
