"""Programs that run on all runtimes, each with one topic. The latter half is written as programs
for SGLang are: helpers that fork, branches by number, answers read in the middle."""

from __future__ import annotations

from dataclasses import dataclass

import sapwood as sw
from sapwood.frontend_lang.forks import ForkGroup


@dataclass
class Animal:
    name: str
    legs: int


@sw.function
def chat(s: sw.State, topic: str) -> None:
    s += sw.system("Be brief.") + sw.user(f"Tell me of {topic}.")
    s += sw.assistant("Well, " + sw.gen("opening", max_tokens=6) + " ... " + sw.gen("rest", 4))
    s += sw.user("Sure?") + sw.assistant(sw.select("sure", ["yes", "no", "yes and no"]))


@sw.function
def tree(s: sw.State, topic: str) -> None:
    s += sw.user(f"Plan: {topic}")
    s += sw.assistant(sw.gen("plan", max_tokens=5))
    with s.fork(3) as forks:
        forks += lambda i: sw.user(f"Step {i}") + sw.assistant(sw.gen("step", max_tokens=4))
    s += sw.user("; ".join(s["step"])) + sw.assistant(sw.gen("end", max_tokens=4))


@sw.function
def plain(s: sw.State, topic: str) -> None:
    s += f"The {topic} is" + sw.gen("x", max_tokens=5, stop=".") + ". It has "
    s += sw.gen_int("legs", max_tokens=4) + " legs, and is "
    s += sw.select("kind", ["a bird", "a fish"])
    s += ". As JSON: " + sw.gen("json", json_schema=Animal, max_tokens=40)


def plans(s: sw.State, topic: str, count: int) -> ForkGroup:
    s += sw.user("One method, in a few words, for: " + topic)
    forks = s.fork(count)
    forks += sw.assistant(sw.gen("plan", max_tokens=6))
    return forks


def carried_out(s: sw.State, count: int) -> ForkGroup:
    s += sw.user("Good. Now do it.")
    forks = s.fork(count)
    forks += sw.assistant(sw.gen("answer", max_tokens=6))
    return forks


@sw.function
def search(s: sw.State, topic: str) -> list[str]:
    found: list[sw.State] = []
    for plan in plans(s, topic, 2):
        found.extend(carried_out(plan, 2))
    s["found"] = [branch.messages()[-1]["content"] for branch in found]
    return [branch["answer"] for branch in found]


METRICS = ["Content: what it says.", "Structure: how it is built.", "Style: how it sounds."]


@sw.function
def judge(s: sw.State, topic: str) -> None:
    s += "An essay on " + topic + ".\n```\nThey are said to be wise.\n```\n"
    forks = s.fork(len(METRICS))
    for i in range(len(METRICS)):
        forks[i] += "USER: Judge by this. " + METRICS[i] + "\nJUDGE:"
        forks[i] += sw.gen("judgement", max_tokens=8, stop="END")
    forks.join()
    for i in range(len(METRICS)):
        s += METRICS[i].split(":")[0] + ": " + forks[i]["judgement"].strip() + "\n"
    s += "From 1 to 10, the score is " + sw.gen("score", max_tokens=2)


@sw.function
def react(s: sw.State, topic: str) -> None:
    s += "Question: Where do " + topic + "s live?\n"
    for i in range(1, 3):
        s += f"Thought {i}:" + sw.gen(f"thought_{i}", max_tokens=8, stop=[".", "\n"]) + ".\n"
        s += f"Action {i}: " + sw.gen(f"action_{i}", choices=["Search", "Finish"])
        if s[f"action_{i}"] == "Finish":
            s += " [" + sw.gen("answer", max_tokens=6, stop="]") + "].\n"
            break
        s += " [" + sw.gen(f"query_{i}", max_tokens=6, stop="]") + "].\n"


@sw.function
def fields(s: sw.State, topic: str) -> None:
    s += "The " + topic + " as JSON:\n"
    with s.var_scope("json"):
        s += '{"name": ' + sw.gen_string("name", max_tokens=12) + ', "legs": '
        s += sw.gen("legs", dtype=int, max_tokens=4) + ', "flies": '
        s += sw.select("flies", ["true", "false"], choices_method=sw.greedy_token_selection) + "}"


@sw.function
def statements(s: sw.State, topic: str) -> None:
    contexts = ["Ann feeds the " + topic + ".", "Ben feeds the cat.", "Cid feeds the fish."]
    s += "Statements:\n"
    forks = s.fork(len(contexts))
    forks += lambda i: f"{i + 1}. " + contexts[i] + "\n"
    forks.join("concate_and_append")
    with s.copy() as aside:
        aside += "Who is not named?" + sw.gen("aside", max_tokens=4)
    s += "Who feeds the " + topic + "? " + sw.gen("who", max_tokens=6, stop="\n")


ALL = (chat, tree, plain, search, judge, react, fields, statements)
