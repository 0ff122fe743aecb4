"""Pages of KV: who owns them, and where they are."""

from .allocator import PageAllocator as PageAllocator
from .prefix_cache import Hold as Hold
from .prefix_cache import PrefixCache as PrefixCache
