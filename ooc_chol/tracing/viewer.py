"""A trace handed to the Perfetto viewer in a browser here, by a server for that one file, which ends once it was fetched.

The viewer is a page of ``ui.perfetto.dev`` that reads traces inside the browser; nothing is uploaded. Its content security policy
lets it read from one port of this machine, which is why there is no choice of ports. The server listens on the loopback address
only, under a path that nobody can foresee, and lets pages of no other origin read the answer.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import threading
import urllib.parse
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, final

#: The viewer; its pages alone may read what is served.
VIEWER = "https://ui.perfetto.dev"
#: The only address of this machine that the viewer may read from: its content security policy names it.
HOST, PORT = "127.0.0.1", 9001

#: Tracks that open with the page: the run, passes beside it, and the streams that compute, with what they waited for.
_OPENED = r"^(run\b.*|passes beside the run|\S+ compute)$"
#: Browsers that run in the terminal, as :mod:`webbrowser` names them.
_TEXT_BROWSERS = {"www-browser", "links", "elinks", "lynx", "w3m"}
#: Seconds after which a connection is given up on which nothing comes.
_IDLE_SECONDS = 30.0


def viewer_link(file_url: str = "", *, viewer: str = VIEWER) -> str:
    """The address of the viewer with a trace in it, its tracks open."""
    commands = [{"id": "dev.perfetto.ExpandTracksByRegex", "args": [_OPENED, "name"]}]
    words = {"url": file_url} if file_url else {}
    words["startupCommands"] = json.dumps(commands, separators=(",", ":"))
    return f"{viewer}/#!/?{urllib.parse.urlencode(words, quote_via=urllib.parse.quote)}"


def show(content: bytes, name: str, *, browser: bool = True, tell: Callable[[str], None] | None = None) -> None:
    """Serve a trace to the viewer, open a browser there, and return once the trace was fetched.

    Raises ``OSError``: the port is taken, by another trace that is shown or by ``trace_processor``.
    """
    tell = tell or partial(print, flush=True)
    with served(content, name) as server:
        opened = browser and _open(server.link)
        tell(f"{'opened in the browser' if opened else 'open in a browser of this machine'}: {server.link}")
        tell("the trace stays on this machine; waiting until the viewer has fetched it (Ctrl-C ends this)")
        server.fetched.wait()


@final
class TraceServer(ThreadingHTTPServer):
    """Serves one file, at one address that nobody can foresee, to pages of the viewer."""

    daemon_threads = True
    block_on_close = False  # a browser keeps connections open on which nothing comes

    def __init__(self, content: bytes, name: str, *, port: int, viewer: str) -> None:
        self.content, self.viewer = content, viewer
        self.path = f"/{secrets.token_urlsafe(24)}/{urllib.parse.quote(name)}"
        self.fetched = threading.Event()  #: Set once the whole file was sent
        super().__init__((HOST, port), _Handler)

    @property
    def link(self) -> str:
        """The address of the viewer with the file in it."""
        return viewer_link(f"http://{HOST}:{self.server_address[1]}{self.path}", viewer=self.viewer)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let a browser that goes away be: it may come again."""


@contextmanager
def served(content: bytes, name: str, *, port: int | None = None, viewer: str = VIEWER) -> Iterator[TraceServer]:
    """Serve a file while the block runs; on another ``port`` than the viewer's only programs find it."""
    port = PORT if port is None else port
    try:
        server = TraceServer(content, name, port=port, viewer=viewer)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        advice = f"end what listens there, or open {viewer_link()} and drop the trace on the page"
        raise OSError(
            error.errno, f"port {port} of this machine is taken, and the viewer reads from no other; {advice}"
        ) from error
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, name="trace server", daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers for the one file; everything else is not found."""

    server: TraceServer
    timeout = _IDLE_SECONDS
    server_version, sys_version = "ooc_chol", ""

    def do_GET(self) -> None:
        """Send the file."""
        if not self._is_known():
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.send_header("Content-Length", str(len(self.server.content)))
        self._end_headers()
        self.wfile.write(self.server.content)
        self.wfile.flush()
        self.server.fetched.set()

    def do_OPTIONS(self) -> None:
        """Say who may read the file: browsers ask before a page of the net reads from this machine."""
        if self._is_known():
            self.send_response(204)
            self.send_header("Access-Control-Allow-Methods", "GET")
            self.send_header("Access-Control-Allow-Private-Network", "true")
            self._end_headers()

    def _is_known(self) -> bool:
        """Tell whether the request is for the file; it is answered here if it is not."""
        if secrets.compare_digest(self.path.encode(), self.server.path.encode()):
            return True
        self.send_error(404)
        return False

    def _end_headers(self) -> None:
        self.send_header("Access-Control-Allow-Origin", self.server.viewer)
        self.send_header("Cache-Control", "no-store")
        self.send_header("X-Content-Type-Options", "nosniff")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Requests are nobody's business."""


def _open(link: str) -> bool:
    """Open a browser with a window; one in the terminal cannot run the viewer."""
    try:
        found = webbrowser.get()
    except webbrowser.Error:
        return False
    return os.path.basename(found.name) not in _TEXT_BROWSERS and found.open_new_tab(link)
