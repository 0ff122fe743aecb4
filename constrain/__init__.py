"""Grammars, matchers and token masks. No torch, and no knowledge of requests."""
