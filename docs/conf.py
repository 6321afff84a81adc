"""How Sphinx builds the documentation: `make docs`."""

import importlib
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util import logging

# The program of this checkout comes before an installed one.
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

from tables import TABLES

import topk_jax

project = "topk_jax"
version = release = topk_jax.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]

# Every link inside the documentation has to lead somewhere; `make docs` makes a warning an error.
nitpicky = True
# No page is fetched to build these, so names of Python, JAX and NumPy are no links.
nitpick_ignore = [
    ("py:exc", "TypeError"),
    ("py:exc", "ValueError"),
    ("py:class", "jax.jaxlib._jax.Array"),
    ("py:class", "numpy.bool"),
    ("py:class", "numpy.ndarray"),
    ("py:class", "numpy.number"),
    # A part of two states, which their attributes describe.
    ("py:class", "topk_jax.drift.Wealth"),
]

myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 3

add_module_names = False
# The docstrings say what each argument is; the annotations are mostly ArrayLike.
autodoc_typehints = "none"
autodoc_class_signature = "separated"
maximum_signature_line_length = 72
napoleon_numpy_docstring = False
napoleon_use_rtype = False

html_theme = "furo"
html_title = f"topk_jax {version}"
html_static_path = ["_static"]
html_css_files = ["style.css"]
html_copy_source = False
html_show_sourcelink = False
html_show_copyright = False
html_math_renderer = "mathml"
html_theme_options = {"navigation_with_keys": True}

PUBLIC_MODULES = ("losses", "operators", "sets", "metrics")
# A role and a literal are taken whole and left as they are; the text may go on in the next line.
BACKQUOTES = re.compile(r":[\w:]+:`[^`]*`|``.*?``|`(?P<text>[^`]+)`(?!_)", flags=re.DOTALL)
# What the converter leaves as it was written.
REPLACEMENTS = {
    r"\{": "{",
    r"\}": "}",
    r"\arg": "arg",
    "<mi>:</mi>": "<mo>:</mo>",
}
# Browsers draw a letter of another alphabet by its own character, no longer by this attribute.
ALPHABET = re.compile(r' mathvariant="(bold|double-struck|script)">(\w)<')
# A function's name stands a little apart from its argument, unless that is in brackets.
FUNCTION = re.compile(r"(<mi>(?:log|exp)</mi>)(?!<mo)")
# A link to a page above docs/, such as README.
ABOVE = re.compile(r"\[[^]]+\]\((?:\.\./)+([A-Z]+\.md)\)")

logger = logging.getLogger(__name__)


def _public_names() -> dict[str, str]:
    modules = [importlib.import_module(f"topk_jax.{name}") for name in PUBLIC_MODULES]
    return {name: f"{module.__name__}.{name}" for module in modules for name in module.__all__}


def fill(_app: Sphinx, _page: str, source: list[str]) -> None:
    """Puts the tables of the program at their marks, such as `<!-- networks -->`.

    The files above docs/ are not built: their names stand in the place of links to them.
    """
    for name, table in TABLES.items():
        mark = f"<!-- {name} -->"
        if mark in source[0]:
            source[0] = source[0].replace(mark, table())
    source[0] = ABOVE.sub(r"`\1`", source[0])


def link_public_names(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Makes a name in backquotes a link where it is one of ours, and code where it is not."""
    public = _public_names()

    def replacement(match: re.Match[str]) -> str:
        if match["text"] is None:
            return match[0]
        text = " ".join(match["text"].split())
        if text in public:
            return f":py:obj:`{text} <{public[text]}>`"
        return f"``{text}``"

    lines[:] = BACKQUOTES.sub(replacement, "\n".join(lines)).split("\n")


def keep_colons(
    _app: Sphinx, _what: str, _name: str, _obj: Any, _options: Any, lines: list[str]
) -> None:
    """Gives back the colon of what is returned, which napoleon takes for the end of a type."""
    lines[:] = [
        line.replace(" -- ", ": ", 1) if line.startswith(":returns:") else line for line in lines
    ]


def _of_alphabet(match: re.Match[str]) -> str:
    words = unicodedata.name(match[2]).replace("LATIN ", "").replace("LETTER ", "")
    name = f"{match[1].upper()} {words}"
    try:
        return f">{unicodedata.lookup('MATHEMATICAL ' + name)}<"
    except KeyError:  # Some letters, such as those of the number sets, have been there for longer.
        return f">{unicodedata.lookup(name)}<"


def mathml(node: nodes.math | nodes.math_block, display: str) -> str:
    """The formula of a node as MathML, which browsers draw without a script."""
    latex = node.astext().strip()
    if r"\\" in latex:
        latex = rf"\begin{{aligned}}{latex}\end{{aligned}}"
    markup = convert(latex, display=display)
    for written, read in REPLACEMENTS.items():
        markup = markup.replace(written, read)
    markup = ALPHABET.sub(_of_alphabet, markup)
    if "\\" in markup:
        logger.warning("formula with an unknown command: %s", latex, location=node)
    return FUNCTION.sub(r'\1<mspace width="0.17em"></mspace>', markup)


def visit_math(translator: Any, node: nodes.math) -> None:
    """Writes a formula in a line."""
    translator.body.append(mathml(node, "inline"))
    raise nodes.SkipNode


def visit_math_block(translator: Any, node: nodes.math_block) -> None:
    """Writes a formula on a line of its own, which scrolls where the screen is narrow."""
    translator.body.append(f'<div class="formula">{mathml(node, "block")}</div>\n')
    raise nodes.SkipNode


def name_columns(_app: Sphinx, document: nodes.document, _page: str) -> None:
    """Puts the name of its column before each cell of a table of three to five columns.

    `style.css` shows the names only on a phone, in tables whose rows stand by themselves there.
    """
    for table in document.findall(nodes.table):
        rows = [list(row.findall(nodes.entry)) for row in table.findall(nodes.row)]
        if not {len(row) for row in rows} <= {3, 4, 5}:
            continue
        names = [cell.astext() for cell in rows[0]]
        for row in rows[1:]:
            for name, cell in zip(names[1:], row[1:], strict=True):
                if name and cell.astext():
                    first = next(cell.findall(nodes.paragraph))
                    first.insert(0, nodes.inline("", f"{name}: ", classes=["column-name"]))


def setup(app: Sphinx) -> dict[str, bool]:
    """Tells Sphinx about the above."""
    app.connect("source-read", fill)
    # After napoleon, which has the usual priority of 500.
    app.connect("autodoc-process-docstring", link_public_names, priority=600)
    app.connect("autodoc-process-docstring", keep_colons, priority=600)
    app.connect("doctree-resolved", name_columns)
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
