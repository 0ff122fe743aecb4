"""``sapwood serve``: starts the processes, watches over them, and brings them down in order."""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

from .channel import make_directory, paths_in, remove_directory
from .checkpoint import find_model, open_checkpoint
from .config import ServerConfig
from .errors import LoadError, UsageError
from .log import Log, configure
from .processes.child import PROGRAMS
from .processes.lifeline import BEAT_SECONDS, Beat, Down, Failed, Peer, Ready, Role, Start, Stop
from .processes.spawn import Child, environment
from .processes.watch import Watch

ROLES: tuple[Role, ...] = ("worker", "detokenizer", "front")
FRONT_GRACE = 3.0
"""Seconds that the front gets to end its requests; with all else the end takes less than 5."""
LAST_WORDS = 1.0
"""Seconds between a death and the end, in which clients get their errors and probes a 503."""


def serve(
    config: ServerConfig,
    programs: Mapping[str, str] = PROGRAMS,
    find: Callable[[ServerConfig], Path] | None = None,
) -> int:
    """Runs a server until it is told to stop (0) or one of its processes dies (1).

    ``programs`` are the modules of the roles, ``find`` checks and finds the model.

    ``UsageError`` and ``LoadError`` say in one line what keeps it from starting.
    """
    with Signals() as signals:
        configure(config.log, "launch")
        with listen(config.front.host, config.front.port) as listener:
            try:
                signals.interrupt = True
                path = (find or check_model)(config)
                signals.interrupt = False
            except KeyboardInterrupt:
                return 0
            directory = make_directory()
            try:
                supervisor = Supervisor(config, signals, programs)
                supervisor.spawn(path, listener, str(directory))
            except BaseException:
                remove_directory(directory)
                raise
            address = url(listener)
        try:
            return supervisor.run(address)
        finally:
            supervisor.close()


def listen(host: str, port: int) -> socket.socket:
    """A socket that listens, so that a port in use is known before any work is done."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except (OSError, OverflowError, UnicodeError) as error:
        raise UsageError(f"--host {host}: {error}") from error
    try:
        return socket.create_server(address[:2], family=family, backlog=2048)
    except OverflowError as error:
        raise UsageError(f"--port {port}: {error}") from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        hint = "; choose another with --port" if port else ""
        raise UsageError(f"cannot listen on {host} port {port}: {reason.lower()}{hint}") from error


def url(listener: socket.socket) -> str:
    """Where the server is found; a wildcard address is shown as it was bound."""
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def check_model(config: ServerConfig) -> Path:
    """The model's path, once it is found and its metadata make sense; ``LoadError`` if not."""
    if config.model.model is None:
        Log("launch").info("no model is named: finding the default one, or fetching it")
    path = find_model(config.model.model)
    checkpoint = open_checkpoint(path)
    checkpoint.config.context(config.model.context_length)
    return path


class Signals:
    """SIGINT, SIGTERM and SIGHUP, counted. With ``interrupt`` the first one raises instead.

    ``fileno`` becomes readable when one comes.
    """

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self.count = 0
        self.interrupt = False
        self._reader, self._writer = socket.socketpair()

    def __enter__(self) -> Signals:
        self._reader.setblocking(False)
        self._writer.setblocking(False)
        self._wakeup = signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        self._former = {number: signal.signal(number, self._note) for number in self._NUMBERS}
        return self

    def __exit__(self, *_: object) -> None:
        for number, former in self._former.items():
            signal.signal(number, former)
        signal.set_wakeup_fd(self._wakeup)
        self._reader.close()
        self._writer.close()

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.interrupt:
            raise KeyboardInterrupt

    def fileno(self) -> int:
        """To be waited on."""
        return self._reader.fileno()

    def take(self) -> None:
        """Makes ``fileno`` unreadable again."""
        with contextlib.suppress(BlockingIOError):
            self._reader.recv(4096)


class Death(NamedTuple):
    """A child that is no more, or no more use, and why; a traceback where the fault is ours."""

    role: Role
    message: str
    traceback: str | None = None


class Supervisor:
    """The parent of a server's processes."""

    def __init__(
        self, config: ServerConfig, signals: Signals, programs: Mapping[str, str] = PROGRAMS
    ) -> None:
        self._config = config
        self._signals = signals
        self._programs = programs
        self._log = Log("launch")
        self._directory: str | None = None
        self._selector = selectors.DefaultSelector()
        self._selector.register(signals, selectors.EVENT_READ)
        self._children: dict[Role, Child] = {}
        self._watches: dict[Role, Watch] = {}
        self._details: dict[Role, dict[str, Any]] = {}
        self._failures: dict[Role, Failed] = {}
        self._began = time.monotonic()

    def spawn(self, model: Path, listener: socket.socket, directory: str) -> None:
        """Starts all children at once; the worker, which takes longest, first."""
        self._directory = directory
        for role in ROLES:
            start = Start(
                role=role,
                config=self._config,
                paths=paths_in(directory),
                model=str(model),
                listener=listener.fileno() if role == "front" else None,
            )
            env = environment(role, self._config.model.threads)
            child = Child(start, self._programs[role], directory, env)
            self._children[role] = child
            limits = self._config.processes
            self._watches[role] = Watch(
                time.monotonic(), silent=limits.silent_seconds, stuck=limits.step_seconds
            )
            self._selector.register(child, selectors.EVENT_READ, role)

    def run(self, address: str) -> int:
        """Returns the exit code once all children are gone."""
        death = None
        while death is None and not self._signals.count:
            death = self._tend()
            if self._ready and self._directory is not None:
                self._serving(address)
        if death is None:
            self._log.info("stopping")
            self._bring_down()
            return 0
        if not self._ready and death.role in self._failures and death.traceback is None:
            raise LoadError(death.message)
        more = {} if death.traceback is None else {"traceback": death.traceback}
        self._log.error("process died", role=death.role, reason=death.message, **more)
        self._mourn(death)
        self._bring_down()
        return 1

    def close(self) -> None:
        """Leaves nothing behind, whatever has happened before."""
        for child in self._children.values():
            child.kill()
            child.wait(5.0)
            child.close()
        self._selector.close()
        self._remove_directory()

    @property
    def _ready(self) -> bool:
        return len(self._details) == len(ROLES)

    def _serving(self, address: str) -> None:
        # Every end is connected by now: the files have done their work.
        self._remove_directory()
        seconds = round(time.monotonic() - self._began, 2)
        self._log.info("serving", url=address, **self._details["worker"], seconds=seconds)

    def _remove_directory(self) -> None:
        if self._directory is not None:
            remove_directory(self._directory)
            self._directory = None

    def _tend(self, seconds: float = BEAT_SECONDS) -> Death | None:
        """Waits for news for a moment; returns the first death."""
        for key, _ in self._selector.select(seconds):
            if key.fileobj is self._signals:
                self._signals.take()
            else:
                death = self._hear(key.data)
                if death is not None:
                    return death
        for role, watch in self._watches.items():
            wrong = watch.verdict(time.monotonic())
            if wrong is not None:
                self._children[role].kill()
                self._forget(role)
                return Death(role, wrong)
        return None

    def _hear(self, role: Role) -> Death | None:
        message = self._children[role].hear()
        if isinstance(message, Beat):
            self._watches[role].beat(time.monotonic(), message.stuck)
        elif isinstance(message, Ready):
            self._watches[role].ready()
            self._details[role] = message.detail
            for other, child in self._children.items():
                if other != role:
                    child.tell(Peer(role, message.detail))
        elif isinstance(message, Failed):
            self._failures[role] = message
        else:
            return self._dead(role)
        return None

    def _dead(self, role: Role) -> Death:
        """Why a child whose lifeline has ended is gone."""
        self._forget(role)
        failure = self._failures.get(role)
        if failure is None:
            code = self._children[role].wait(1.0)
            how = f"signal {-code}" if code is not None and code < 0 else f"status {code}"
            return Death(role, f"its process ended with {how}")
        return Death(role, failure.message, failure.traceback)

    def _forget(self, role: Role) -> None:
        """Expects nothing more of a child."""
        self._selector.unregister(self._children[role])
        del self._watches[role]

    def _mourn(self, death: Death) -> None:
        """Tells the front, and leaves it a moment to tell the clients."""
        if death.role == "front" or "front" not in self._details:
            return
        # What a fault of ours says of itself is for the log alone.
        reason = death.message if death.traceback is None else "it failed"
        self._children["front"].tell(Down(death.role, f"the {death.role} is gone: {reason}"))
        end = time.monotonic() + LAST_WORDS
        while time.monotonic() < end and not self._signals.count:
            if self._tend(0.1) is not None:
                return

    def _bring_down(self) -> None:
        """The front first, so that no request is cut that can still be answered."""
        front = self._children["front"]
        front.tell(Stop(FRONT_GRACE))
        grace = FRONT_GRACE if "front" in self._details else 0.0
        end = time.monotonic() + grace
        while front.wait(0.05) is None and time.monotonic() < end:
            if self._signals.count > 1:
                break  # told twice: at once
        for child in self._children.values():
            child.tell(Stop(0.0))
        end = time.monotonic() + 0.5
        for child in self._children.values():
            if child.wait(end - time.monotonic()) is None:
                child.kill()
