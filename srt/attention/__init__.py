"""Attention over paged KV: one Protocol, and a backend per device."""

from .backend import AttentionBackend as AttentionBackend
