"""Read a report back from its HTML: elements, texts, data and images."""

import base64
import json
import re
import struct
import zlib
from html.parser import HTMLParser

import numpy as np

VOID = {"meta", "img", "input", "br"}


class ParsedPage(HTMLParser):
    """Elements and texts of a page whose elements are all closed, in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self._open = [], [], []
        self.feed(html)
        self.close()
        assert not self._open, f"not closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style") and data.strip():
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(" ".join(self.texts).split())

    @property
    def ids(self):
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


def page_data(html):
    """The JSON for the scripts."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text)


def unpack(packed):
    """The inverse of `pack_table`."""
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(packed["shape"])
    return steps * np.array(packed["units"])


def decode_png(data):
    """The image in a grayscale PNG file without filters, by the rules of the format."""
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
    assert rest == [8, 0, 0, 0, 0]  # 8 bits, gray, deflate, standard filters, not interlaced
    rows = np.frombuffer(zlib.decompress(pixels), np.uint8).reshape(height, width + 1)
    assert not rows[:, 0].any()  # no filter
    return rows[:, 1:]
