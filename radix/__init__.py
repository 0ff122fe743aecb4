"""The prefix tree: which token sequences have KV, and on which pages. Numpy only."""
