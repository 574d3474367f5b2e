from types import SimpleNamespace

import pytest

pytest.importorskip("nvflare")

from fmtc.errors import ServerLostError
from fmtc.runtime.flare.federation import Coordinator


class Session:
    """Answers after so many questions that it did not hear."""

    def __init__(self, deaf):
        self.deaf = deaf

    def get_job_meta(self, job_id):
        self.deaf -= 1
        if self.deaf >= 0:
            raise ConnectionError("too busy")
        return {"status": "RUNNING"}

    def submit_job(self, job):
        return self.get_job_meta(job)["status"]


@pytest.fixture
def coordinator(monkeypatch):
    monkeypatch.setattr("fmtc.runtime.flare.federation.time.sleep", lambda seconds: None)
    found = object.__new__(Coordinator)
    found.server = SimpleNamespace(alive=True)
    return found


def test_a_busy_server_is_asked_twice(coordinator):
    coordinator.session = Session(deaf=1)
    assert coordinator.status("job") == "RUNNING"
    coordinator.session = Session(deaf=2)
    with pytest.raises(ServerLostError, match="ConnectionError: too busy"):
        coordinator.status("job")


def test_a_job_is_not_handed_in_twice(coordinator, tmp_path):
    coordinator.session = Session(deaf=1)
    with pytest.raises(ServerLostError, match="too busy"):
        coordinator.submit(tmp_path)


def test_a_server_that_is_gone_is_not_asked_again(coordinator):
    coordinator.session = Session(deaf=1)
    coordinator.server = None
    with pytest.raises(ServerLostError, match="the server process is gone"):
        coordinator.status("job")
    assert coordinator.session.deaf == 1
