"""How Sphinx makes the documentation site; ``make docs`` runs it, and a warning is an error there."""

from __future__ import annotations

import contextlib
import io
import os
import re
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

import ooc_chol
from ooc_chol.cli import main

# Help texts are as wide as a page and have no colours, whatever the terminal of the build is.
os.environ.update(COLUMNS="82", NO_COLOR="1")

project = "ooc_chol"
release = ooc_chol.__version__
extensions = ["sphinx.ext.autodoc", "myst_parser", "numpydoc"]
exclude_patterns = ["_build"]
nitpicky = True

# Docstrings give shapes and units beside types, so signatures need no types and words of a type are no links.
autodoc_typehints = "none"
autodoc_member_order = "bysource"
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
numpydoc_validation_checks = {"GL08", "PR01", "PR02", "PR10", "RT03", "SS01"}
# Methods of geostatistics classes: those of an abstract class are described there once. Settings have the options of
# FactorOptions, which describes them; plans and reports the facts of their frames, and a product the signature of NumPy's arrays,
# which nobody calls. FILES are values, Escalations is a tuple, Precision an enumeration, and brief_repr becomes
# a method.
numpydoc_validation_exclude = {
    r"^ooc_chol\.apps\.geostat\.\w+\.",
    r"\.(FactorSettings|TRACE_FILES|FACTOR_FILES|Escalations|Precision|brief_repr)$",
    r"\.(FitPlan|FitReport|PredictPlan|PredictReport|Product)$",
}

myst_heading_anchors = 4
# `:::` for the cards of the first page, `$...$` for mathematics, which browsers draw themselves: see MathML below.
myst_enable_extensions = ["colon_fence", "dollarmath"]
html_math_renderer = "mathml"

html_theme = "pydata_sphinx_theme"
html_title = f"ooc_chol {release}"
html_context = {"default_mode": "auto"}
html_static_path = ["_static"]
html_favicon = "_static/favicon.svg"
html_css_files = ["site.css"]
html_js_files = ["site.js"]
templates_path = ["_templates"]
# All pages in the left column of each, where the theme has those below the current one; the header is then a line.
html_sidebars = {"**": ["all-pages.html"]}
html_show_sourcelink = False
html_copy_source = False
html_theme_options: dict[str, Any] = {
    "navigation_with_keys": False,
    "pygments_dark_style": "github-dark",
    "show_prev_next": False,
    "secondary_sidebar_items": {"**": ["page-toc"], "index": []},
    "logo": {"text": project},
    "navbar_start": ["navbar-logo", "version"],
    "navbar_center": [],
    "navbar_end": ["theme-switcher"],
    "footer_start": [],
    "footer_end": [],
}


class CommandHelp(SphinxDirective):
    """``{command-help} plan``: what ``ooc-chol plan --help`` prints, from the command line itself."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """The help text as a block."""
        with contextlib.redirect_stdout(io.StringIO()) as text, contextlib.suppress(SystemExit):
            main([*self.arguments[0].split(), "--help"])
        return [nodes.literal_block(text.getvalue(), text.getvalue(), language="text")]


def draw_mathematics(self: Any, node: nodes.math | nodes.math_block) -> None:
    """Write TeX as MathML, without a script or a network; a narrow page breaks formulas where they have room."""
    if isinstance(node, nodes.math_block):
        parts = [tex2mathml(part, as_block=True) for part in node.astext().split(r"\qquad")]
        self.body.append(f'<div class="formula">{"".join(parts)}</div>\n')
    else:
        self.body.append(tex2mathml(node.astext()))
    raise nodes.SkipNode


def link_outside(app: Sphinx, docname: str, source: list[str]) -> None:
    """Let links to documents and folders outside ``docs`` lead to the file itself, or to the folder's README."""
    here = Path(app.srcdir, docname).parent

    def linked(match: re.Match[str]) -> str:
        target = (here / match[1]).resolve()
        if target.is_dir():
            return f"](path:{match[1].rstrip('/')}/README.md)"
        is_outside = target.suffix == ".md" and not target.is_relative_to(app.srcdir)
        return f"](path:{match[1]})" if is_outside else match[0]

    source[0] = re.sub(r"\]\((\.\./[^)#\s]+)\)", linked, source[0])


def is_field(app: Sphinx, what: str, name: str, item: object, skip: bool, options: object) -> bool | None:
    """Leave fields of named tuples out: the class describes them among its parameters."""
    return True if str(item.__doc__).startswith("Alias for field number") else None


def setup(app: Sphinx) -> None:
    """Add what this site has of its own."""
    app.add_directive("command-help", CommandHelp)
    app.add_html_math_renderer("mathml", (draw_mathematics, None), (draw_mathematics, None))
    app.connect("source-read", link_outside)
    app.connect("autodoc-skip-member", is_field)
