"""Real servers for the tests: all processes, real sockets, and a model that is real or tiny."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from safetensors.numpy import save_file

from sapwood.constrain.vocabulary import char_of_byte

PATIENCE = 60.0
"""Seconds after which a test gives up."""


class Server:
    """A server started by the command line, and all processes of it."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self.folder = folder / "tmp"
        self.folder.mkdir()
        self.log_path = folder / "log"
        with self.log_path.open("w") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "sapwood", "serve", *arguments],
                stderr=log,
                env={**os.environ, "TMPDIR": str(self.folder)},
                start_new_session=True,
            )
        self.tree: dict[str, psutil.Process] = {}

    @property
    def output(self) -> str:
        """What it has written so far."""
        return self.log_path.read_text()

    def children(self) -> dict[str, psutil.Process]:
        """Its processes by role."""
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in psutil.Process(self.process.pid).children(recursive=True):
                with contextlib.suppress(psutil.Error):
                    line = " ".join(child.cmdline())
                    for role in ("worker", "detokenizer", "front"):
                        if f"sapwood.srt.{role}" in line:
                            self.tree[role] = child
        return self.tree

    def ready(self) -> Server:
        """Waits until it serves."""
        self.until(lambda: " serving " in self.output or self.process.poll() is not None, "serving")
        assert self.process.poll() is None, self.output
        assert len(self.children()) == 3
        return self

    @property
    def url(self) -> str:
        """Its address."""
        found = re.search(r"url=(http://\S+)", self.output)
        assert found, self.output
        return found[1]

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status and answer, parsed where it is JSON."""
        connection = self.connect()
        with contextlib.closing(connection):
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            text = response.read().decode()
            kind = response.headers.get("content-type", "")
            return response.status, json.loads(text) if kind.startswith(
                "application/json"
            ) else text

    def connect(self) -> http.client.HTTPConnection:
        """A connection of one's own."""
        return http.client.HTTPConnection(self.url.removeprefix("http://"), timeout=PATIENCE)

    def start_stream(self, **body: Any) -> http.client.HTTPConnection:
        """A streaming completion whose first token has come."""
        connection = self.connect()
        whole = {"prompt": "x", "max_tokens": 4000, "ignore_eos": True, "stream": True, **body}
        connection.request("POST", "/v1/completions", json.dumps(whole))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        connection.reading = response  # type: ignore[attr-defined]
        while not response.readline().startswith(b"data: "):
            pass
        return connection

    def metric(self, name: str) -> float:
        """One figure of ``/metrics``."""
        status, text = self.request("GET", "/metrics")
        assert status == 200
        found = re.search(rf"^{name} (\S+)$", text, re.MULTILINE)
        assert found, f"{name} is not in {text}"
        return float(found[1])

    def until(self, true: Callable[[], bool], what: str) -> None:
        """Waits for something."""
        end = time.monotonic() + PATIENCE
        while not true():
            assert time.monotonic() < end, f"timed out: {what}\n{self.output}"
            time.sleep(0.02)

    def ended(self) -> int:
        """The exit code, once no process and no file is left."""
        code = self.process.wait(PATIENCE)
        self.until(lambda: not any(map(_alive, self.tree.values())), "no process")
        assert not list(self.folder.iterdir())
        return code

    def kill(self) -> None:
        """For the end of a test that has failed."""
        for process in [*self.children().values(), self.process]:
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                process.kill()
        self.process.wait()


def _alive(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


@contextlib.contextmanager
def starting() -> Iterator[Callable[..., Server]]:
    with contextlib.ExitStack() as stack:

        def begin(*arguments: str) -> Server:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="sw"))
            server = Server(Path(folder), *arguments)
            stack.callback(server.kill)
            return server

        yield begin


@pytest.fixture
def start() -> Iterator[Callable[..., Server]]:
    """Starts servers of a test's own."""
    with starting() as begin:
        yield begin


@pytest.fixture(scope="session")
def server(default_model_path: Path) -> Iterator[Server]:
    """One server of the default model, for all tests that leave it as it was."""
    with starting() as begin:
        live = begin(str(default_model_path), "--port", "0", "--kv-tokens", "30000")
        yield live.ready()
        live.process.terminate()
        assert live.ended() == 0


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A llama of two small layers with random weights, over the 256 bytes."""
    folder = tmp_path_factory.mktemp("models") / "tiny"
    folder.mkdir()
    hidden, inner, vocab, layers = 64, 128, 258, 2
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocab,
        "hidden_size": hidden,
        "intermediate_size": inner,
        "num_hidden_layers": layers,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "tie_word_embeddings": True,
        "eos_token_id": 257,
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer_json()))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "<eos>"}))
    save_file(_tensors(hidden, inner, vocab, layers), folder / "model.safetensors")
    return str(folder)


def _tensors(hidden: int, inner: int, vocab: int, layers: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(3)

    def matrix(rows: int, columns: int) -> np.ndarray:
        return (rng.standard_normal((rows, columns)) / columns**0.5).astype(np.float32)

    tensors = {
        "model.embed_tokens.weight": matrix(vocab, hidden) * 8,
        "model.norm.weight": np.ones(hidden, np.float32),
    }
    shapes = {
        "self_attn.q_proj": (hidden, hidden),
        "self_attn.k_proj": (hidden // 2, hidden),
        "self_attn.v_proj": (hidden // 2, hidden),
        "self_attn.o_proj": (hidden, hidden),
        "mlp.gate_proj": (inner, hidden),
        "mlp.up_proj": (inner, hidden),
        "mlp.down_proj": (hidden, inner),
    }
    for layer in range(layers):
        prefix = f"model.layers.{layer}"
        tensors |= {f"{prefix}.{name}.weight": matrix(*shape) for name, shape in shapes.items()}
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{prefix}.{norm}.weight"] = np.ones(hidden, np.float32)
    return tensors


def _tokenizer_json() -> dict[str, Any]:
    pieces = [*char_of_byte(), "<bos>", "<eos>"]
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True}
    byte_level["use_regex"] = True
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 256 + i, "content": text, "special": True, **flags}
            for i, text in enumerate(pieces[256:])
        ],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": None,
        "decoder": byte_level,
        "model": {"type": "BPE", "vocab": {p: i for i, p in enumerate(pieces)}, "merges": []},
    }
