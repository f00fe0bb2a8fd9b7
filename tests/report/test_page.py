"""Pages: escaped, self-contained, allowed to run their own scripts only, written atomically."""

import base64
import hashlib
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from knoi.report import Page
from knoi.report.images import data_uri
from knoi.report.page import pack_table, round_values
from tests.report.reading import ParsedPage, decode_png, page_data, unpack

HOSTILE = "</script><!--<script>\u2028\u2029<img src=x onerror=alert(1)>\"'&{{ 7 * 7 }}"


def demo_like(text="plain"):
    """A page with the same text in every place that takes text, and in the data."""
    tile = {"uri": data_uri(np.zeros((4, 3), np.uint8)), "description": text, "caption": text}
    tiles = [{**tile, "correct": False}, {**tile, "correct": True}]
    values = {
        "title": text,
        "subtitle": text,
        "result": type("Result", (), {"samples": 10}),
        "n_components": 2,
        "n_test": 5,
        "cards": [(text, text, text)],
        "columns": (text, text),
        "rows": ((text, text), (text, text)),
        "best": {(0, 1)},
        "examples": [[{"title": text, "tiles": tiles}]],
        "command": text,
        "facts": [(text, text)],
    }
    return Page("demo.html", values, {"text": text, text: 1})


@given(st.text(alphabet="<>&\"'$\\{}%a/!-\u2028", min_size=1, max_size=12).filter(str.strip))
def test_every_text_is_escaped(text):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("plotly.offline.get_plotlyjs", lambda: "")  # 5 MB to parse
        plain, page = ParsedPage(demo_like().html()), ParsedPage(demo_like(text).html())
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.texts.count(text) == plain.texts.count("plain")
    assert [image["alt"] for image in page.all("img")] == [text] * 2


def test_data_cannot_end_its_script():
    html = demo_like(HOSTILE).html()
    assert page_data(html) == {"text": HOSTILE, HOSTILE: 1}
    (written,) = re.findall(r'id="data">(.*?)</script>', html, re.S)
    assert not set("<>&'\u2028\u2029") & set(written)
    with pytest.raises(ValueError, match="not JSON compliant"):
        Page("demo.html", demo_like().values, {"x": float("nan")}).html()


def test_a_page_is_self_contained_and_runs_its_own_scripts_only():
    html = demo_like().html()
    page = ParsedPage(html)
    (policy,) = (m["content"] for m in page.all("meta") if "http-equiv" in m)
    assert policy.startswith("default-src 'none'; img-src data: blob:; style-src 'unsafe-inline';")
    assert "script-src 'sha256-" in policy
    assert "unsafe-eval" not in policy
    scripts = re.findall(r"<script>(.*?)</script>", html, re.S)
    digests = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    assert re.findall(r"'sha256-([^']*)'", policy) == digests
    assert len(scripts) == 2
    assert not page.all("link")
    assert not any("src" in script for script in page.all("script"))
    assert all(image["src"].startswith("data:image/png;base64,") for image in page.all("img"))
    assert not re.search(r"@import|url\(", html.partition("<body>")[0])
    assert "prefers-color-scheme: dark" in html
    # Bold and marked cells are in their places.
    assert html.count("<td><b>plain</b></td>") == 1
    assert html.count('<tr class="baseline">') == 1
    assert html.count('<figure class="tile correct">') == html.count('<figure class="tile">') == 1


def test_an_interrupted_write_keeps_the_old_page(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    demo_like("old").write(path)
    demo_like("new ✓").write(path)
    assert path.read_text(encoding="utf-8") == demo_like("new ✓").html()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        demo_like("newer").write(path)
    assert path.read_text(encoding="utf-8") == demo_like("new ✓").html()
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_name_that_is_not_utf8_can_be_shown(tmp_path):
    demo_like("knoi fit caf\udce9.npy").write(tmp_path / "report.html")
    assert "knoi fit caf?.npy" in (tmp_path / "report.html").read_text(encoding="utf-8")


@given(arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=20)))
def test_png_holds_the_pixels(image):
    for pixels in (image, image.T[::-1, ::2]):
        np.testing.assert_array_equal(decode_png(data_uri(pixels)), pixels)


@given(arrays(np.float64, array_shapes(min_dims=2, max_dims=2), elements=st.floats(-1e9, 1e9)))
def test_packed_numbers_are_accurate_to_16_bits(values):
    packed = unpack(pack_table(values))
    assert (np.abs(packed - values) <= np.abs(values).max(axis=0) / 32_000 + 1e-300).all()
    whole = np.rint(values) % 32_768
    np.testing.assert_array_equal(unpack(pack_table(whole, integers=True)), whole)
    assert round_values([1.23456789, np.nan, np.inf]) == [1.235, None, None]
