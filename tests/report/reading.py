"""Read a report back from its HTML: elements, texts, data and images."""

import base64
import io
import json
import re
from html.parser import HTMLParser

import numpy as np
from PIL import Image

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


def decode_png(uri):
    """The pixels of a grayscale PNG file in a data URI."""
    data = base64.b64decode(uri.removeprefix("data:image/png;base64,"))
    with Image.open(io.BytesIO(data), formats=["PNG"]) as image:
        assert image.mode == "L"
        return np.asarray(image)
