"""The report page and its pictures: valid, self-contained, escaped, written whole or not at all."""

import re
import struct
import zlib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

import knoi.report.page
from knoi.exceptions import InputError
from knoi.report.page import (
    Cards,
    Facts,
    Figure,
    Gallery,
    Picture,
    Report,
    Section,
    Strip,
    Table,
)
from knoi.report.pictures import LineChart, Series, data_uri, png
from tests.html_page import Page


def decoded(data):
    """The image in a PNG file, read by the rules of the format and nothing of ours."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = [], 8
    while at < len(data):
        (length,) = struct.unpack_from(">I", data, at)
        kind, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        (checksum,) = struct.unpack_from(">I", data, at + 8 + length)
        assert checksum == zlib.crc32(kind + body)
        chunks.append((kind, body))
        at += 12 + length
    (first, header), (second, pixels), last = chunks
    assert (first, second, last) == (b"IHDR", b"IDAT", (b"IEND", b""))
    width, height, *rest = struct.unpack(">2I5B", header)
    assert rest == [8, 0, 0, 0, 0]  # 8 bits, grey, deflate, the usual filters, not interlaced
    rows = np.frombuffer(zlib.decompress(pixels), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()  # no row is filtered
    return rows[:, 1:]


def a_report(text="plain"):
    chart = LineChart(text, text, text, (Series(text, (1.0, 0.5, 0.25)), Series(text, (0.5,))))
    picture = Picture(np.zeros((4, 3), np.uint8), text, text)
    marked = Picture(np.full((4, 3), 255, np.uint8), text, text, marked=True)
    blocks = (
        Cards(((text, text, text),)),
        Table((text, text), ((text, text), (text, text)), frozenset({(0, 1)}), baseline=1),
        Figure(chart, text),
        Gallery(((Strip(text, (picture, marked)),),)),
        Facts(((text, text),)),
    )
    return Report(text, text, (Section(text, text, blocks),))


@given(arrays(np.uint8, array_shapes(min_dims=2, max_dims=2, max_side=20)))
def test_png_holds_the_pixels_it_was_given(image):
    np.testing.assert_array_equal(decoded(png(image)), image)


def test_png_takes_an_image_in_any_memory_layout():
    image = np.arange(60, dtype=np.uint8).reshape(6, 10)
    np.testing.assert_array_equal(decoded(png(image.T[::-1, ::2])), image.T[::-1, ::2])


@pytest.mark.parametrize(
    "image", [np.zeros((2, 2)), np.zeros(4, np.uint8), np.zeros((0, 3), np.uint8)]
)
def test_png_refuses_what_is_no_grey_image(image):
    with pytest.raises(InputError, match=r"wanted uint8 pixels of shape \(height, width\)"):
        png(image)


def test_page_is_whole_and_loads_nothing():
    html = a_report().html()
    page = Page(html)
    assert not re.search(r"https?://|@import|url\(", html)
    assert not page.all("script")
    assert not page.all("link")
    assert [image["src"][:22] for image in page.all("img")] == ["data:image/png;base64,"] * 2
    assert all(image["alt"] for image in page.all("img"))
    assert "prefers-color-scheme: dark" in html
    assert {"name": "viewport", "content": "width=device-width, initial-scale=1"} in page.all(
        "meta"
    )


@given(st.text(alphabet="<>&\"'$\\{}a/", min_size=1, max_size=12))
def test_every_text_is_escaped(text):
    plain, page = Page(a_report().html()), Page(a_report(text).html())
    assert [tag for tag, _ in page.tags] == [tag for tag, _ in plain.tags]
    assert page.texts.count(text) == plain.texts.count("plain")
    assert [image["alt"] for image in page.all("img")] == [text] * 2


def test_bold_marked_and_baseline_cells_are_where_they_were_put():
    html = a_report().html()
    assert html.count("<td><b>plain</b></td>") == 1
    assert html.count('<tr class="baseline">') == 1
    assert html.count('<figure class="tile marked">') == 1
    assert html.count('<figure class="tile">') == 1


def test_chart_puts_higher_values_higher_and_names_every_line():
    svg = LineChart("t", "x", "y", (Series("one", (1.0, 0.5, 0.0)), Series("two", (2.0,)))).svg()
    points = re.findall(r'points="([^"]*)"', svg)
    first = [tuple(map(float, p.split(","))) for p in points[0].split()]
    xs, ys = zip(*first, strict=True)
    assert list(xs) == sorted(xs)
    assert ys[0] < ys[1] < ys[2]
    assert ys[1] == pytest.approx((ys[0] + ys[2]) / 2, abs=0.1)
    # A value out of range stays on the chart.
    assert float(points[2].split(",")[1]) == ys[0]
    assert ">one</text>" in svg
    assert ">two</text>" in svg


@pytest.mark.parametrize("n", [1, 2, 20, 500])
def test_chart_labels_few_points_whatever_their_number(n):
    svg = LineChart("t", "x", "y", (Series("one", (0.5,) * n),)).svg()
    labels = re.findall(r'text-anchor="middle">(\d+)</text>', svg)
    assert labels[0] == "1"
    assert labels[-1] == str(n)
    assert len(labels) <= 11


def test_every_line_of_a_chart_has_a_colour_in_light_and_dark():
    many = LineChart("t", "x", "y", tuple(Series(f"{k}", (0.5, 0.6)) for k in range(6))).svg()
    looks = set(re.findall(r'class="(s\d)"', many))
    style = (Path(knoi.report.page.__file__).parent / "static" / "base.css").read_text()
    assert len(looks) == 4
    for look in looks:
        assert f".{look} {{ stroke: var(--{look}); fill: var(--{look}); }}" in style
        assert style.count(f"--{look}: #") == 2


def test_data_uri_carries_the_picture():
    import base64

    image = np.eye(5, dtype=np.uint8) * 200
    kind, _, data = data_uri(image).partition(",")
    assert kind == "data:image/png;base64"
    np.testing.assert_array_equal(decoded(base64.b64decode(data)), image)


def test_a_failed_write_leaves_the_old_page_and_nothing_else(tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    a_report("old").write(path)
    before = path.read_text()

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("knoi.fileio.os.replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        a_report("new").write(path)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_write_replaces_an_older_page(tmp_path):
    path = tmp_path / "report.html"
    a_report("old").write(path)
    a_report("new ✓").write(path)
    assert path.read_text(encoding="utf-8") == a_report("new ✓").html()
