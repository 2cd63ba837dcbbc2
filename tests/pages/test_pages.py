"""Every page and picture of the binary in a real Chromium: as a person on a phone, a laptop or a large screen sees it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pages.chromium import Chromium

MEASURE = (Path(__file__).parent / "measure.js").read_text()
WIDTHS = (390, 1024, 1920)
# Smallest text in CSS pixels, and least contrast of text (WCAG 2.2, level AA).
SIZE, CONTRAST = 10.0, 4.5

PAGES = ("policies.html", "devices.html", "tenants.html", "load.html", "capacity.html", "profile.html")
# Files of one drawing keep their layout, so they are for screens that are wide enough for it.
DRAWINGS = ("plan-tessera.svg", "plan-temporal.svg", "plan-gpulet.svg", "profile.svg", "policies.svg")
CASES = [(name, width) for name in PAGES for width in WIDTHS] + [(name, width) for name in DRAWINGS for width in WIDTHS[1:]]


def unfold(browser: Chromium) -> None:
    browser.evaluate("document.querySelectorAll('details').forEach((part) => { part.open = true; })")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize(("name", "width"), CASES)
def test_everything_can_be_read(
    browser: Chromium, pages: dict[str, Path], pictures: Path, name: str, width: int, scheme: str
) -> None:
    address = pages[name].as_uri()
    browser.open(address, width, scheme)
    browser.screenshot(pictures / f"{name.replace('.', '-')}-{width}-{scheme}.png")
    unfold(browser)
    seen = browser.evaluate(MEASURE)
    assert isinstance(seen, dict)
    assert browser.errors == []
    assert browser.requested == [address], "a page loads nothing else"
    assert seen["overflow"] <= 0
    assert seen["outside"] == [], "texts that reach beyond their drawing"
    assert len(seen["texts"]) > 10
    small = [(text["words"], round(text["size"], 1)) for text in seen["texts"] if text["size"] < SIZE]
    assert small == []
    faint = [(text["words"], round(text["contrast"], 2)) for text in seen["texts"] if text["contrast"] < CONTRAST]
    assert faint == []
    assert seen["drawings"] and all(all(drawing.values()) for drawing in seen["drawings"]), seen["drawings"]
    assert seen["tables"] == 0, "tables without a caption, or with a header that has no scope"
    assert name.endswith(".svg") or seen["headings"] >= 3


@pytest.mark.parametrize("name", PAGES)
def test_tables_that_scroll_can_be_scrolled_by_keyboard(browser: Chromium, pages: dict[str, Path], name: str) -> None:
    browser.open(pages[name].as_uri(), 390, "light")
    unfold(browser)
    stuck = browser.evaluate(
        "[...document.querySelectorAll('*')].filter((part) => part.scrollWidth > part.clientWidth + 1"
        " && ['auto', 'scroll'].includes(getComputedStyle(part).overflowX) && part.tabIndex < 0).length"
    )
    assert stuck == 0


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("policies.html", "of requests within their latency objective"),
        ("devices.html", "device-hours"),
        ("load.html", "of requests were answered within their latency objective"),
        ("capacity.html", "Capacity: "),
    ],
)
def test_the_first_sentence_answers_the_question(browser: Chromium, pages: dict[str, Path], name: str, answer: str) -> None:
    browser.open(pages[name].as_uri(), 1024, "light")
    assert answer in str(browser.evaluate("document.querySelector('.verdict').textContent"))
