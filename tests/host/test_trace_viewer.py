"""A trace is served to the viewer alone, under a name that nobody knows, and once."""

from __future__ import annotations

import gzip
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import threading
import urllib.parse
import webbrowser

import pytest

from ooc_chol.tracing import Trace
from tests.host.runs import COMMAND, ENVIRONMENT
from tests.inside.cli import main
from tests.inside.tracing import viewer
from tests.plan.simulated_records import Operation, simulate

pytestmark = pytest.mark.usefixtures("no_hang")

CONTENT = b"a trace" * 10_000


def ask(port: int, method: str, path: str, **headers: str):
    """The answer of the server, read to its end."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, path, headers=headers)
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


@pytest.fixture
def server():
    with viewer.served(CONTENT, "my run.pftrace", port=0) as server:
        yield server


def test_the_file_is_served_to_pages_of_the_viewer_alone(server):
    port = server.server_address[1]
    answer, content = ask(port, "GET", server.path, Origin="https://ui.perfetto.dev")
    assert (answer.status, content) == (200, CONTENT)
    assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert answer.headers["Cache-Control"] == "no-store"
    assert server.fetched.wait(10)


def test_browsers_that_ask_first_are_told(server):
    headers = {"Access-Control-Request-Method": "GET", "Access-Control-Request-Private-Network": "true"}
    answer, content = ask(server.server_address[1], "OPTIONS", server.path, **headers)
    assert (answer.status, content) == (204, b"")
    assert answer.headers["Access-Control-Allow-Origin"] == "https://ui.perfetto.dev"
    assert answer.headers["Access-Control-Allow-Private-Network"] == "true"
    assert not server.fetched.is_set()


@pytest.mark.parametrize("method", ["GET", "OPTIONS", "POST", "HEAD", "PUT"])
def test_nothing_else_is_served(server, method):
    folder = server.path.rsplit("/", 1)[0]
    wrong = [
        "/",
        "/status",
        "/my%20run.pftrace",
        "/../../etc/passwd",
        folder,
        f"{folder}/",
        f"{folder}/other",
        server.path + "?x=1",
    ]
    for path in wrong:
        answer, content = ask(server.server_address[1], method, path)
        assert answer.status in (404, 501) and CONTENT[:7] not in content
        assert answer.headers["Access-Control-Allow-Origin"] is None
    assert not server.fetched.is_set()


def test_it_listens_on_the_loopback_address_only(server):
    assert server.server_address[0] == "127.0.0.1"
    addresses = {entry[4][0] for entry in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)}
    for address in addresses - {"127.0.0.1", "127.0.1.1"}:
        with pytest.raises(OSError):
            socket.create_connection((address, server.server_address[1]), timeout=2).close()


def test_no_two_names_are_alike():
    names = set()
    for _ in range(3):
        with viewer.served(CONTENT, "run.pftrace", port=0) as server:
            names.add(server.path)
    assert len(names) == 3 and all(len(name.split("/")[1]) >= 32 for name in names)


def test_a_browser_that_goes_away_may_come_again(server):
    port = server.server_address[1]
    with socket.create_connection(("127.0.0.1", port), timeout=5):  # nothing comes on it: others are answered all the same
        with socket.create_connection(("127.0.0.1", port), timeout=5) as cut:
            cut.sendall(f"GET {server.path} HTTP/1.0\r\n".encode())
        answer, content = ask(port, "GET", server.path)
    assert (answer.status, content) == (200, CONTENT)


def fields(link: str) -> dict[str, str]:
    """Scheme and page of a link, and the fields behind them."""
    page, _, query = link.partition("?")
    assert page == "https://ui.perfetto.dev/#!/"
    return dict(urllib.parse.parse_qsl(query, strict_parsing=True))


def test_the_link_opens_the_trace_and_the_tracks_that_matter(server):
    found = fields(server.link)
    assert found["url"] == f"http://127.0.0.1:{server.server_address[1]}{server.path}"
    (command,) = json.loads(found["startupCommands"])
    assert command["id"] == "dev.perfetto.ExpandTracksByRegex"
    pattern, by = command["args"]
    assert by == "name"
    for name in ("run", "run, n = 65,536", "cuda:0 compute", "host:11 compute", "passes beside the run"):
        assert re.search(pattern, name), name
    for name in ("cuda:0 compute, predicted", "cuda:0 compute, waits", "cuda:0 copy-in", "links, copy by copy"):
        assert not re.search(pattern, name), name


def test_the_port_is_one_that_the_viewer_may_read_from():
    assert viewer.PORT == 9001
    assert fields(viewer.viewer_link()).keys() == {"startupCommands"}


class Window(webbrowser.BaseBrowser):
    """A browser that fetches the trace as the page of the viewer does."""

    def __init__(self, name: str = "window") -> None:
        super().__init__(name)
        self._fetched: list[bytes] = []
        self._threads: list[threading.Thread] = []

    @property
    def fetched(self) -> list[bytes]:
        """What was fetched so far."""
        for thread in self._threads:
            thread.join()
        return self._fetched

    def open(self, url, new=0, autoraise=True):
        address = urllib.parse.urlsplit(fields(url)["url"])

        def fetch() -> None:
            assert address.port is not None
            ask(address.port, "POST", "/status")  # the viewer looks for a trace processor first
            self._fetched.append(ask(address.port, "GET", address.path)[1])

        self._threads.append(threading.Thread(target=fetch))
        self._threads[-1].start()
        return True


@pytest.fixture
def window(monkeypatch):
    """The only browser, and a port of its own, so that tests do not meet on the viewer's."""
    window = Window()
    monkeypatch.setattr(webbrowser, "get", lambda: window)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    monkeypatch.setattr(viewer, "PORT", port)
    return window


TRACE = Trace(tuple(simulate([Operation("host:0", "compute", 50_000)])), (), {"n": 2})


def test_show_serves_what_save_writes_and_returns(window, capsys, tmp_path):
    TRACE.show()
    assert window.fetched == [TRACE.save(tmp_path / "run.pftrace").read_bytes()]
    out = capsys.readouterr().out
    assert out.startswith("opened in the browser: https://ui.perfetto.dev/#!/?url=") and "stays on this machine" in out


def test_a_browser_of_the_terminal_is_not_opened(monkeypatch, capsys, window):
    window.name = "/usr/bin/w3m"
    link = []

    def tell(text: str) -> None:
        if found := re.search(r"https://\S+", text):
            link.append(found[0])
            Window().open(found[0])

    viewer.show(CONTENT, "run.pftrace", tell=tell)
    assert len(link) == 1 and window.fetched == []


def test_a_port_that_is_taken_is_named(window, capsys, tmp_path):
    path = TRACE.save(tmp_path / "run.pftrace")
    with viewer.served(CONTENT, "first.pftrace"):
        assert main(["trace", "view", str(path)]) == 2
    err = capsys.readouterr().err
    assert f"port {viewer.PORT} of this machine is taken" in err and "drop the trace on the page" in err


def test_the_command_serves_a_file_as_it_is(window, tmp_path):
    path = tmp_path / "run.pftrace.gz"
    path.write_bytes(gzip.compress(TRACE.save(tmp_path / "run.pftrace").read_bytes()))
    assert main(["trace", "view", str(path)]) == 0
    assert window.fetched == [path.read_bytes()]


def test_the_command_serves_no_other_file(window, capsys, tmp_path):
    path = tmp_path / "secret.txt"
    path.write_text("a secret")
    assert main(["trace", "view", str(path)]) == 2
    assert f"{path} is no trace of ooc_chol" in capsys.readouterr().err and window.fetched == []


def test_the_command_says_what_the_trace_says(capsys, tmp_path):
    path = TRACE.save(tmp_path / "run.pftrace")
    assert main(["trace", "summary", str(path)]) == 0
    assert capsys.readouterr().out == f"{TRACE.summary()}\n"


@pytest.mark.usefixtures("processes")
def test_ctrl_c_ends_the_command(tmp_path):
    path = TRACE.save(tmp_path / "run.pftrace")
    words = [*COMMAND, "trace", "view", "--no-browser", str(path)]
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
    assert process.stdout is not None
    assert process.stdout.readline().startswith("open in a browser of this machine: https://ui.perfetto.dev/#!/?url=")
    assert "Ctrl-C" in process.stdout.readline()
    os.kill(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130 and "Traceback" not in err
