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


def on_page_content(text: str, **_: Any) -> str:
    """Called by MkDocs with the HTML of every page."""
    return _MARKED.sub(_mathml, text)


def _mathml(found: re.Match[str]) -> str:
    from latex2mathml.converter import convert

    block = found["open"] == "["
    return convert(html.unescape(found["formula"]).strip(), display="block" if block else "inline")
