"""The worker's look at its own book-keeping."""

from __future__ import annotations

import pytest

from sapwood.srt.worker import AUDIT_SECONDS, IdleAudit


class Core:
    """A core that is busy or not, and whose audit finds what it is told to."""

    def __init__(self) -> None:
        self.busy = False
        self.fault: str | None = None
        self.audits = 0

    def audit(self) -> str | None:
        self.audits += 1
        return self.fault


def test_c045_a_failed_audit_is_logged_and_nothing_more(caplog: pytest.LogCaptureFixture) -> None:
    """C045: loudly, without taking the server down, and only when there is nothing to do."""
    core, now = Core(), [0.0]
    audit = IdleAudit(core, clock=lambda: now[0])
    audit.tend()
    assert core.audits == 0
    now[0] = AUDIT_SECONDS
    core.busy = True
    audit.tend()
    assert core.audits == 0
    core.busy = False
    audit.tend()
    audit.tend()
    assert core.audits == 1
    assert not caplog.records
    core.fault = "a page has no owner, or two"
    now[0] += AUDIT_SECONDS
    audit.tend()
    [record] = caplog.records
    assert (record.levelname, "miscounted" in record.getMessage()) == ("ERROR", True)
