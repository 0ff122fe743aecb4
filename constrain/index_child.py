"""The process in which outlines-core compiles, so that what it takes can be limited.

Run as a program of its own, in isolation: it imports nothing of ours. It reads pickled requests
from its parent on standard input and answers on standard output, each with its length before it.
A table is ``(number of states, those that accept, sources, labels, targets)``; state 0 comes first.
"""

from __future__ import annotations

import os
import pickle
import resource
import struct
import sys
import threading
import time
from array import array
from typing import Any, BinaryIO

NICENESS = 19
"""Steps of a model go first where there are no more processors than they use."""

Table = tuple[int, list[int], bytes, bytes, bytes]


def main() -> None:
    """Serves until the parent closes the pipe."""
    threading.Thread(target=_watch, args=(os.getppid(),), daemon=True).start()
    os.nice(NICENESS)
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    setup = _read(source)
    assert setup is not None
    memory, tokens, end = setup
    import outlines_core

    other = end + 1 + max((max(ids) for ids in tokens.values()), default=0)
    single = {bytes([byte]): [byte] for byte in range(256)}
    byte_vocabulary = outlines_core.Vocabulary(256, single)
    vocabulary = outlines_core.Vocabulary(other, {**tokens, b"\0": [end]})
    first_bytes = [0] * 256
    for text, ids in tokens.items():
        first_bytes[text[0]] += len(ids)
    resource.setrlimit(resource.RLIMIT_AS, (_address_space() + memory,) * 2)
    while (request := _read(source)) is not None:
        expression, max_states, max_edges = request
        each = ""
        try:
            if isinstance(expression, list):
                tables = []
                for each in expression:
                    index = outlines_core.Index(each, byte_vocabulary)
                    tables.append((_table(index, 0), _takes_nul(index)))
                _write(sink, ("ok", tables))
                continue
            index = outlines_core.Index(expression, byte_vocabulary)
            by_byte = _table(index, 0)
            edges = sum(first_bytes[byte] for byte in array("i", by_byte[3]))
            by_token: Table | None = None
            if by_byte[0] <= max_states and edges <= max_edges:
                by_token = _table(outlines_core.Index(expression, vocabulary), end)
            _write(sink, ("ok", by_byte, by_token))
        except MemoryError:
            _write(sink, ("memory",))
        except ValueError as error:
            _write(sink, ("error", str(error), each))


def _watch(parent: int) -> None:
    """Ends the process once its parent is gone, whatever it is doing.

    A signal at the parent's death would not do: it comes when the thread that started us ends.
    """
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


def _table(index: Any, end: int) -> Table:
    """The transitions of an index whose texts are closed by ``end``, without those by it."""
    final = set(index.get_final_states())
    sources, labels, targets = array("i"), array("i"), array("i")
    accepting = []
    transitions = index.get_transitions()
    first = index.get_initial_state()
    numbers, todo = {first: 0}, [first]
    while todo:
        state = todo.pop()
        source = numbers[state]
        for label, target in transitions.get(state, {}).items():
            if label == end:
                if target in final:
                    accepting.append(source)
            elif state not in final and target in transitions:
                if target not in numbers:
                    numbers[target] = len(numbers)
                    todo.append(target)
                sources.append(source)
                labels.append(label)
                targets.append(numbers[target])
    return len(numbers), accepting, sources.tobytes(), labels.tobytes(), targets.tobytes()


def _takes_nul(index: Any) -> bool:
    """Whether an expression of one character matches NUL: one does not close its text, then."""
    state = index.get_transitions().get(index.get_initial_state(), {}).get(0)
    return state is not None and state not in index.get_final_states()


def _address_space() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()


def _read(source: BinaryIO) -> Any:
    head = source.read(8)
    if len(head) < 8:
        return None
    return pickle.loads(source.read(struct.unpack("<Q", head)[0]))


def _write(sink: BinaryIO, value: Any) -> None:
    data = pickle.dumps(value, protocol=5)
    sink.write(struct.pack("<Q", len(data)) + data)
    sink.flush()


if __name__ == "__main__":
    main()
