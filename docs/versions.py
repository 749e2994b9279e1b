"""The page of all versions of the site beside their folders, and a first page that leads to the newest.

    python docs/versions.py docs/_build

A folder is a version when its name is a version's number. Whoever publishes the site adds the folder of a release to those of
the releases before and runs this again.
"""

from __future__ import annotations

import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

PAGE = """<!DOCTYPE html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>ooc_chol: {title}</title>{more}
<style>
:root {{ color-scheme: light dark }}
body {{ font-family: system-ui; max-width: 40rem; margin: 3rem auto; padding: 0 1rem }}
</style>
<h1>ooc_chol</h1>
<p>Documentation of each version:</p>
<ul>
{links}
</ul>
</html>
"""


def versions_of(site: Path) -> list[Version]:
    """Versions that have a folder, the newest first."""
    found = []
    for page in site.glob("*/index.html"):
        try:
            found.append(Version(page.parent.name))
        except InvalidVersion:
            continue
    return sorted(found, reverse=True)


def write_pages(site: Path) -> None:
    """Write ``versions.html`` and ``index.html`` into a folder of versions."""
    versions = versions_of(site)
    if not versions:
        sys.exit(f"{site} holds no folder of a version, such as 0.1.0, with an index.html; make docs makes one")
    links = "\n".join(f'<li><a href="{each}/index.html">{each}</a></li>' for each in versions)
    (site / "versions.html").write_text(PAGE.format(title="versions", more="", links=links), encoding="utf-8")
    leads = f'\n<meta http-equiv="refresh" content="0; url={versions[0]}/index.html">'
    (site / "index.html").write_text(PAGE.format(title="documentation", more=leads, links=links), encoding="utf-8")


if __name__ == "__main__":
    write_pages(Path(sys.argv[1]))
