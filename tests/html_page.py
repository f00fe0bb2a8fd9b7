"""An HTML page, read back: elements and texts."""

from html.parser import HTMLParser

VOID = {"meta", "img", "input", "br", "line", "circle", "rect", "path", "polyline"}


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

    def handle_startendtag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

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
