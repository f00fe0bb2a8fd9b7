"""Pictures without a plotting library: PNG from an array, an SVG line chart from numbers."""

import base64
import struct
import zlib
from dataclasses import dataclass
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.exceptions import InputError

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_GREYSCALE = 0


def png(image: NDArray[Any]) -> bytes:
    """Encode a grey image as PNG.

    Parameters
    ----------
    image : uint8 array of shape (height, width)
        0 is black.
    """
    if image.dtype != np.uint8 or image.ndim != 2 or image.size == 0:
        raise InputError(
            f"image is {image.dtype} of shape {image.shape}: wanted uint8 pixels of shape "
            "(height, width). Scale the image to 0..255 and convert it."
        )
    height, width = image.shape
    header = struct.pack(">2I5B", width, height, 8, _GREYSCALE, 0, 0, 0)
    # Every row begins with the number of its filter: 0, none.
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = image
    pixels = zlib.compress(rows.tobytes(), 9)
    return _SIGNATURE + b"".join(
        _chunk(kind, data) for kind, data in ((b"IHDR", header), (b"IDAT", pixels), (b"IEND", b""))
    )


def data_uri(image: NDArray[Any]) -> str:
    """The image as an address that holds the picture itself."""
    return "data:image/png;base64," + base64.b64encode(png(image)).decode("ascii")


def _chunk(kind: bytes, data: bytes) -> bytes:
    checksum = zlib.crc32(kind + data)
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", checksum)


@dataclass(frozen=True)
class Series:
    """One line of a chart."""

    name: str
    values: tuple[float, ...]  # at x = 1, 2, ...


@dataclass(frozen=True)
class LineChart:
    """Lines over 1, 2, ..., for values from 0 to 1.

    Lines differ by marker and dash, not by colour alone; colours come from the CSS classes s0, s1,
    ... and text takes the colour of the page, so that light and dark pages can share a chart.
    """

    title: str  # said to those who cannot see it
    x_label: str
    y_label: str
    series: tuple[Series, ...]

    # Small, since a phone shows it at 350 pixels: the text must survive the shrinking.
    _WIDTH, _HEIGHT = 480, 300
    _LEFT, _RIGHT, _TOP, _BOTTOM = 62, 12, 34, 46

    def svg(self) -> str:
        """The chart as an inline SVG element."""
        parts = [self._grid(), self._axis_labels()]
        for k, series in enumerate(self.series):
            parts += [self._line(k, series), self._legend_entry(k, series)]
        return (
            f'<svg class="chart" viewBox="0 0 {self._WIDTH} {self._HEIGHT}" role="img" '
            f'aria-label="{escape(self.title)}">{"".join(parts)}</svg>'
        )

    @property
    def _n_points(self) -> int:
        return max((len(series.values) for series in self.series), default=1)

    def _x(self, i: int) -> float:
        span = self._WIDTH - self._LEFT - self._RIGHT - 16
        return self._LEFT + 8 + span * (i - 1) / max(1, self._n_points - 1)

    def _y(self, value: float) -> float:
        bottom = self._HEIGHT - self._BOTTOM
        return bottom - (bottom - self._TOP) * float(np.clip(value, 0.0, 1.0))

    def _grid(self) -> str:
        right, bottom = self._WIDTH - self._RIGHT, self._HEIGHT - self._BOTTOM
        lines = []
        for tick in (0.0, 0.25, 0.5, 0.75, 1.0):
            y = self._y(tick)
            lines.append(
                f'<line class="grid" x1="{self._LEFT}" y1="{y:.1f}" x2="{right}" y2="{y:.1f}"/>'
                f'<text x="{self._LEFT - 7}" y="{y + 4:.1f}" text-anchor="end">{tick:g}</text>'
            )
        step = next(s for s in (1, 2, 5, 10, 20, 50, self._n_points) if self._n_points <= 6 * s)
        lines += (
            f'<text x="{self._x(i):.1f}" y="{bottom + 17}" text-anchor="middle">{i}</text>'
            for i in sorted({1, *range(step, self._n_points + 1, step)})
        )
        return "".join(lines)

    def _axis_labels(self) -> str:
        middle_x = (self._LEFT + self._WIDTH - self._RIGHT) / 2
        middle_y = (self._TOP + self._HEIGHT - self._BOTTOM) / 2
        return (
            f'<text x="{middle_x:.1f}" y="{self._HEIGHT - 8}" text-anchor="middle">'
            f"{escape(self.x_label)}</text>"
            f'<text transform="translate(15 {middle_y:.1f}) rotate(-90)" text-anchor="middle">'
            f"{escape(self.y_label)}</text>"
        )

    def _line(self, k: int, series: Series) -> str:
        points = [(self._x(i), self._y(value)) for i, value in enumerate(series.values, start=1)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        markers = "".join(_marker(k, x, y) for x, y in points)
        return f'<g class="{_look(k)}"><polyline points="{path}"/>{markers}</g>'

    def _legend_entry(self, k: int, series: Series) -> str:
        # From the left edge: four names of ten letters just fit.
        x = 8 + k * (self._WIDTH - 8) / max(1, len(self.series))
        return (
            f'<g class="{_look(k)}"><polyline points="{x:.1f},14 {x + 26:.1f},14"/>'
            f'{_marker(k, x + 13, 14)}</g><text x="{x + 32:.1f}" y="18">'
            f"{escape(series.name)}</text>"
        )


def _look(k: int) -> str:
    """The CSS class of a line: its colour and dash, of which there are as many as markers."""
    return f"s{k % 4}"


def _marker(k: int, x: float, y: float) -> str:
    if k % 4 == 0:
        return f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.2"/>'
    if k % 4 == 1:
        return f'<rect x="{x - 2.9:.1f}" y="{y - 2.9:.1f}" width="5.8" height="5.8"/>'
    if k % 4 == 2:
        return f'<path d="M{x:.1f} {y - 4:.1f}l4 7h-8z"/>'
    return f'<path d="M{x:.1f} {y - 4.5:.1f}l4.5 4.5l-4.5 4.5l-4.5 -4.5z"/>'
