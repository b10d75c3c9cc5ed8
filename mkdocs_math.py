"""Formulas of the documentation as MathML, made while the site is built: browsers draw it, nothing is fetched.

`pymdownx.arithmatex` finds `$...$` and `$$...$$` and marks them; this hook of MkDocs turns what it marked into MathML.
"""

from __future__ import annotations

import html
import re
from typing import Any

_MARKED = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">\\(?P<open>[(\[])(?P<formula>.*?)\\[)\]]</(?P=tag)>', re.DOTALL
)
_MATRIX = re.compile(r"\\(begin|end)\{([bp])matrix\}")
_TAG = re.compile(r"\\tag\{([^}]*)\}")


def on_page_content(text: str, **_: Any) -> str:
    """Called by MkDocs with the HTML of every page."""
    return _MARKED.sub(_mathml, text)


def _mathml(found: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    formula = html.unescape(found["formula"]).strip()
    # The converter loses its way where a matrix with brackets has an exponent, unless they are written out.
    formula = _MATRIX.sub(_fence, formula)
    number = _TAG.search(formula)
    block = found["open"] == "["
    made = convert(_TAG.sub("", formula), display="block" if block else "inline")
    made = made.replace("<mi>&#x02032;</mi>", '<mo lspace="0" rspace="0">&#x02032;</mo>')
    if not block:
        return made
    return f'<div class="formula">{made}<span>{f"({number[1]})" if number else ""}</span></div>'


def _fence(found: re.Match[str]) -> str:
    left, right = {"b": "[]", "p": "()"}[found[2]]
    if found[1] == "begin":
        return rf"{{\left{left}\begin{{matrix}}"
    return rf"\end{{matrix}}\right{right}}}"
