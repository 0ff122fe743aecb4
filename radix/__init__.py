"""The prefix tree: which token sequences have KV, and on which pages. Numpy only."""

from .node import common_prefix as common_prefix
from .policy import EvictionPolicy as EvictionPolicy
from .policy import LeastFrequentlyUsed as LeastFrequentlyUsed
from .policy import LeastRecentlyUsed as LeastRecentlyUsed
from .policy import LowestPriority as LowestPriority
from .tree import Lease as Lease
from .tree import Match as Match
from .tree import RadixTree as RadixTree
from .tree import SharedRun as SharedRun
from .tree import shared_runs as shared_runs
