"""What the page holds, read back from its HTML alone."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np

VOID = {"meta", "img", "input", "br"}


class Page(HTMLParser):
    """Elements and texts of a page; refuses one whose elements are not closed in order."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.texts, self._open = [], [], []
        self.feed(html)
        self.close()
        assert not self._open, f"never closed: {self._open}"

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag):
        assert self._open.pop() == tag

    def handle_data(self, data):
        if self._open and self._open[-1] not in ("script", "style"):
            self.texts.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]

    @property
    def text(self):
        return " ".join(self.texts)

    @property
    def ids(self):
        return {attributes["id"] for _, attributes in self.tags if "id" in attributes}


def data_of(html):
    """The JSON in the page."""
    (text,) = re.findall(r'<script type="application/json" id="data">(.*?)</script>', html, re.S)
    return json.loads(text)


def unpacked(packed):
    """The table that was packed."""
    steps = np.frombuffer(base64.b64decode(packed["data"]), "<i2").reshape(packed["shape"])
    return steps * np.array(packed["units"])
