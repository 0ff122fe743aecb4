"""One request's guesses at what comes next, and how far they are to be trusted."""

from __future__ import annotations

from .ngram_index import NgramIndex

HOPE = 0.7
"""Chance that a guess of a new request is right, until its own say."""

MEMORY = 12.0
"""Guesses over which a request's chance is averaged."""

LEAST = 0.35
"""Chance below which a token is not guessed, whatever a step costs."""

REST = 24
"""Steps with something to guess after which a row that had stopped guesses one token again."""


class Guesser:
    """One request's index, and how often its guesses were right of late.

    ``chance`` is the moving average over single tokens: those that were right, and the first that
    was not. The j-th token of a draft is right with about the j-th power of it.
    """

    __slots__ = ("chance", "index", "rested")

    def __init__(self) -> None:
        self.index = NgramIndex()
        self.chance = HOPE
        self.rested = 0

    def learn(self, drafted: int, right: int) -> None:
        """Takes in how a draft ended: ``right`` of its tokens, from the first on."""
        for _ in range(right):
            self.chance += (1.0 - self.chance) / MEMORY
        if right < drafted:
            self.chance -= self.chance / MEMORY

    def chances(self, most: int) -> list[float]:
        """Of each further token to be right: as many as are worth a guess.

        After a rest that is one, and it counts as sure: what it tells is worth more than the token.
        """
        found: list[float] = []
        chance = self.chance
        while len(found) < most and chance >= LEAST:
            found.append(chance)
            chance *= self.chance
        if found:
            return found
        self.rested += 1
        return [1.0] if self.rested >= REST else []
