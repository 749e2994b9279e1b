"""What every public object promises when it is shown: one line, a page, and in notebooks a small picture."""

from __future__ import annotations

import inspect
import time
from dataclasses import fields, is_dataclass
from html.parser import HTMLParser
from xml.etree import ElementTree

#: Characters of a ``repr``, lines of a ``str``, bytes of what a notebook gets, and seconds for any of them.
LONGEST_LINE, LONGEST_PAGE, LARGEST_HTML, LONGEST_SECONDS = 200, 60, 65536, 0.25
#: What user text looks like that must not become markup, and a character that XML does not have.
HOSTILE = "<script>alert('x')</script> & \x00\n\"quoted\""


class _Tags(HTMLParser):
    """All tags of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)


def shown(what, show):
    """What ``show`` makes of an object, and that it takes no time of this thread: the least of three."""
    seconds = []
    for _ in range(3):
        began = time.thread_time()
        text = show(what)
        seconds.append(time.thread_time() - began)
    assert min(seconds) < LONGEST_SECONDS, (type(what).__name__, show, seconds)
    return text


def check_prints(what):
    """Fail unless ``what`` keeps all promises."""
    line = shown(what, repr)
    assert line and "\n" not in line and len(line) < LONGEST_LINE, (type(what), len(line), line[:300])
    assert " at 0x" not in line, line
    page = shown(what, str)
    assert len(page.splitlines()) < LONGEST_PAGE and len(page) < 100 * LONGEST_PAGE, (type(what), page[:300])
    if hasattr(what, "_repr_html_") and (html := shown(what, lambda one: one._repr_html_())) is not None:
        check_html(html)


def check_html(html):
    """Fail unless a notebook's HTML is small, well-formed, draws, and runs nothing."""
    assert len(html.encode()) < LARGEST_HTML
    root = ElementTree.fromstring(html)
    (drawing,) = root.iter("{http://www.w3.org/2000/svg}svg")
    assert len(list(drawing)) > 3
    parser = _Tags()
    parser.feed(html)
    assert set(parser.tags) <= {"div", "pre", "svg", "title", "rect", "text", "path"}
    width, height = (float(drawing.get(name)) for name in ("width", "height"))
    for part in drawing.iter():
        if part.get("x") is not None:
            assert 0 <= float(part.get("x")) <= width and 0 <= float(part.get("y")) <= height, ElementTree.tostring(part)


def parts_of(what, depth=3):
    """The object and all that it holds of this package, a few levels deep: what a person may look into."""
    found = [what]
    if depth == 0:
        return found
    names = [row.name for row in fields(what)] if is_dataclass(what) else getattr(what, "_fields", ())
    values = [getattr(what, name) for name in names]
    values += list(what[:2]) if isinstance(what, tuple) else []
    for value in values:
        items = value[:2] if type(value) in (tuple, list) else [value]
        for item in items:
            if type(item).__module__.startswith("ooc_chol"):
                found += parts_of(item, depth - 1)
    return found


def classes_of(named):
    """Public classes of which there are objects, by name."""
    return {name: one for name, one in named.items() if inspect.isclass(one) and not one.__name__.startswith("Abstract")}
