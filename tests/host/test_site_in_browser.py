"""The documentation site in a browser: no page scrolls sideways, wide or narrow, and wide tables tell their columns on a phone.

Deselected where there is no Chromium.
"""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documents import ROOT

pytestmark = [pytest.mark.host, pytest.mark.package("sphinx"), pytest.mark.program("chromium")]

#: Tells the page around it what is wider than its place: the page, something that scrolls, something that sticks out; and
#: what on a narrow page stands in a wide table without the name of its column.
LOOK = """
addEventListener("load", () => setTimeout(() => {
  const width = document.documentElement.clientWidth, found = [];
  if (document.documentElement.scrollWidth > width) found.push("the page");
  for (const each of document.querySelectorAll("body *:not(span.w)")) {
    const scrolls = ["auto", "scroll"].includes(getComputedStyle(each).overflowX) && each.scrollWidth > each.clientWidth + 1;
    const box = each.getBoundingClientRect(), leaves = each.closest("main") && box.width > 0 && box.right > width + 1;
    if ((scrolls && each.clientWidth > 0) || leaves) found.push(each.tagName + " " + each.textContent.trim().slice(0, 40));
  }
  for (const cell of document.querySelectorAll("main td:nth-child(5)")) {
    const isNamed = getComputedStyle(cell, "::before").content.includes(cell.dataset.name || "?");
    if (width < 600 && !cell.classList.contains("nothing") && !isNamed) found.push("no name of " + cell.textContent.trim());
  }
  parent.postMessage([document.title, found.slice(0, 3)], "*");
}, 100));
"""
#: Shows one page after the other, and writes what they tell, a line each.
FRAME = """<iframe style="width: WIDTHpx; height: 900px"></iframe><pre></pre><script>
const pages = PAGES, frame = document.querySelector("iframe"), told = document.querySelector("pre");
addEventListener("message", event => {
  told.textContent += JSON.stringify([frame.getAttribute("src"), ...event.data]) + "\\n";
  if (pages.length) frame.src = pages.shift();
});
frame.src = pages.shift();
</script>"""


@pytest.fixture(scope="module")
def site(processes: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site as ``make docs`` makes it, each page of which looks at itself."""
    place = tmp_path_factory.mktemp("site")
    words = ["--quiet", "-b", "html", "-d", str(place / "doctrees"), str(ROOT / "docs"), str(place / "html")]
    subprocess.run([sys.executable, "-m", "sphinx", *words], cwd=ROOT, check=True, capture_output=True, timeout=500)
    for page in pages_of(place / "html"):
        text = page.read_text(encoding="utf-8")
        page.write_text(text.replace("</head>", f"<script>{LOOK}</script></head>"), encoding="utf-8")
    return place / "html"


def pages_of(site: Path) -> list[Path]:
    """Pages that somebody wrote."""
    made = ("genindex.html", "search.html", "py-modindex.html")
    return [path for path in sorted(site.rglob("*.html")) if path.name not in made and "_static" not in path.parts]


@pytest.mark.parametrize("width", [1300, 400])
def test_no_page_scrolls_sideways(site, width, tmp_path):
    names = [str(page.relative_to(site)) for page in pages_of(site)]
    frame = site / f"frame-{width}.htm"
    frame.write_text(FRAME.replace("WIDTH", str(width)).replace("PAGES", json.dumps(names)), encoding="utf-8")
    chromium = [
        "chromium",
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        f"--user-data-dir={tmp_path}",
        "--window-size=1500,1000",
    ]
    command = [*chromium, "--virtual-time-budget=200000", "--dump-dom", frame.as_uri()]
    shown = subprocess.run(command, check=True, capture_output=True, text=True, timeout=300).stdout
    told = [
        json.loads(html.unescape(line)) for line in re.findall(r'\[".*\]', shown.partition("<pre>")[2].partition("</pre>")[0])
    ]
    assert [name for name, *_ in told] == names and len(names) > 40
    assert {name: found for name, _, found in told if found} == {}
