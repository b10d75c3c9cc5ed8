"""Formulas of the site are MathML that any browser draws, with nothing fetched."""

from __future__ import annotations

from xml.etree import ElementTree

import mkdocs_math

NAMESPACE = "{http://www.w3.org/1998/Math/MathML}"


def _drawn(formula: str, *, block: bool = False) -> tuple[str, ElementTree.Element]:
    marked = (
        rf'<div class="arithmatex">\[{formula}\]</div>'
        if block
        else rf'<span class="arithmatex">\({formula}\)</span>'
    )
    made = mkdocs_math.on_page_content(f"<p>{marked}</p>", page=None)
    assert "arithmatex" not in made
    (math,) = ElementTree.fromstring(made).iter(f"{NAMESPACE}math")
    return made, math


def test_inline_formulas_with_signs_that_html_escapes() -> None:
    made, math = _drawn(r"a &lt; b")
    assert math.get("display") == "inline"
    assert "&lt;" in made or "&#x0003C;" in made
    assert "formula" not in made


def test_numbers_of_displayed_formulas_stand_apart() -> None:
    made, math = _drawn(r"x = 1 . \tag{3}", block=True)
    assert math.get("display") == "block"
    assert made.endswith("<span>(3)</span></div></p>")
    assert "tag" not in "".join(math.itertext())


def test_a_matrix_with_brackets_may_have_an_exponent() -> None:
    _, math = _drawn(r"\begin{bmatrix} M &amp; J' \\ J &amp; 0 \end{bmatrix}^{-1}", block=True)
    powers = list(math.iter(f"{NAMESPACE}msup"))
    assert [len(power) for power in powers] == [2, 2]
    assert "[" in "".join(powers[0].itertext())
