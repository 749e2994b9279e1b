"""Pictures of traces as the Perfetto viewer shows them, with a few words beside what matters.

    python benchmarks/trace_screenshots.py                         the recorded traces of one GPU and of four, into docs/pictures
    python benchmarks/trace_screenshots.py run.pftrace --output .  another one

A headless Chromium opens the page of the viewer, which fetches each trace from this machine, so that this needs the net and
Playwright (``pip install playwright && playwright install chromium``). Nothing is uploaded.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import socket
import sys
import urllib.parse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ooc_chol.tracing import viewer
from ooc_chol.tracing.records import read_trace_file

ROOT = Path(__file__).resolve().parents[1]
RECORDED = ("h200-fp64-65536-8g-planned", "h200-fp64-65536-8g-async", "h200x4-residue-163840")
SIZE = {"width": 1600, "height": 900}
#: Milliseconds that the viewer may take to load a trace, and during which it must do nothing to count as done.
LOADING_MS, STILL_MS = 120_000, 1_000
#: Words beside the first track whose name matches.
WORDS = {
    r"^run, n =": "the run: order, tiles, policy, seconds, rate",
    r" computes$": "share of the time in which a kernel runs",
    r" resident$": "memory in use; the budget is the line below",
    r" compute$": "kernels: blue products, crimson POTRF and TRSM; empty where nothing runs",
    r" compute, predicted$": "the same kernels as the plan expected them",
    r" compute, waits$": "whom the stream waited for",
    r" copy-in$": "tiles that come in",
    r" copy-out$": "tiles that are final go out",
}
#: Draws them over the page: a label at the right end of each track.
LABEL = """words => {
  const used = new Set();
  for (const title of document.querySelectorAll('.pf-track__title')) {
    const name = title.innerText.trim();
    const found = Object.entries(words).find(([pattern, _]) => !used.has(pattern) && new RegExp(pattern).test(name));
    const place = title.closest('.pf-track__header')?.getBoundingClientRect();
    if (!found || !place || place.bottom > window.innerHeight) continue;
    used.add(found[0]);
    const label = document.createElement('div');
    label.innerText = found[1];
    label.style.cssText = `position:fixed; right:24px; top:${place.top + 2}px; z-index:9999; padding:1px 8px; border-radius:4px;
      font:13px sans-serif; color:#fff; background:rgba(20,20,20,.82)`;
    document.body.append(label);
  }
}"""


def missing() -> str | None:
    """What of a browser and the viewer is not here; None where all is."""
    if importlib.util.find_spec("playwright") is None:
        return "Playwright (pip install playwright)"
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        if not Path(playwright.chromium.executable_path).exists():
            return "Chromium (playwright install chromium)"
    host = urllib.parse.urlsplit(viewer.VIEWER).hostname or ""
    try:
        socket.create_connection((host, 443), timeout=5).close()
    except OSError as error:
        return f"a way to {host} ({error})"
    return None


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """A page of the viewer with a trace in it, as the link opens it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright, viewer.served(read_trace_file(path), path.name) as server:
        # a person is asked once whether the page may read from this machine; nobody is here to answer
        browser = playwright.chromium.launch(args=["--disable-features=LocalNetworkAccessChecks"])
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
    """Names of the tracks on the screen, from top to bottom."""
    names: list[str] = page.locator(".pf-track__title").all_inner_texts()
    return [name.strip() for name in names]


def photograph(path: Path, picture: Path) -> None:
    """Draw the first screen of a trace, with words."""
    with opened(path) as page:
        page.evaluate(LABEL, WORDS)
        page.screenshot(path=picture)
        print(f"{picture}: {json.dumps(titles(page))}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the pictures; status 2 says what they would need."""
    parser = argparse.ArgumentParser(description="Pictures of traces as the Perfetto viewer shows them.")
    parser.add_argument("traces", nargs="*", type=Path, help="traces; the recorded ones of one GPU and of four without any")
    parser.add_argument("--output", type=Path, default=ROOT / "docs/pictures", help="folder of the pictures")
    options = parser.parse_args(arguments)
    if (want := missing()) is not None:
        print(f"trace_screenshots: there is no {want}", file=sys.stderr)
        return 2
    for path in options.traces or [ROOT / f"traces/{name}.pftrace.gz" for name in RECORDED]:
        photograph(path, options.output / f"trace-{path.name.split('.')[0]}.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
