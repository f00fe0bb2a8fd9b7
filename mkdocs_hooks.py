r"""Hooks of the documentation build: links out of the site, and formulas.

Links out of `docs/` point into the repository, which is not part of the site: they are replaced by
the names of the files.

Formulas become MathML, which browsers render without scripts, fonts or network. Pages write them as
`$...$` and `$$...$$`, docstrings as `:math:` and `.. math::`, as in scikit-learn. Only the TeX used
here is supported; an unknown command stops the build.
"""

import posixpath
import re
from html import escape, unescape
from typing import Any

from griffe import Extension

_SYMBOLS = {
    "top": "⊤", "sum": "∑", "prod": "∏", "min": "min", "max": "max", "cos": "cos", "leftarrow": "←",
    "approx": "≈", "cdot": "·", "le": "≤", "ge": "≥", "in": "∈", "dots": "…", "ldots": "…",
    "infty": "∞", "partial": "∂", "times": "×", "|": "‖", "alpha": "α", "beta": "β", "Delta": "Δ",
    "epsilon": "ε", "eta": "η", "kappa": "κ", "lambda": "λ", "Lambda": "Λ", "mu": "μ", "phi": "φ",
    "pi": "π", "psi": "ψ", "rho": "ρ", "sigma": "σ", "Sigma": "Σ", "to": "→", "{": "{", "}": "}",
}  # fmt: skip
_SPACES = {",": "0.17em", ";": "0.28em", "quad": "1em", " ": "0.25em"}
_ACCENTS = {"tilde": "~", "hat": "^", "bar": "¯"}
_LETTERS = set("αβΔεηκλΛμφπψρσΣ∞∂")
_LIMITS = ("\\sum", "\\prod", "\\min", "\\max")  # in blocks their index goes below
_TOKEN = re.compile(r"\\[A-Za-z]+|\\.|\d+(?:\.\d+)?|\S")
# What pymdownx.arithmatex leaves, in its generic form.
_INLINE = re.compile(r'<span class="arithmatex">\\\((.*?)\\\)</span>', re.DOTALL)
_BLOCK = re.compile(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', re.DOTALL)

_LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>\.\./[^)\s]+)\)")


class _Formula:
    """A formula read from the left, token by token."""

    def __init__(self, tex: str, block: bool) -> None:
        self.tex, self.block = tex, block
        self.tokens = _TOKEN.findall(tex)
        self.at = 0

    def row(self, end: str | None = None) -> str:
        """All that comes before `end`, side by side."""
        parts = []
        while self.at < len(self.tokens) and self.tokens[self.at] != end:
            parts.append(self.scripted())
        if end is not None:
            self.take(end)
        return f"<mrow>{''.join(parts)}</mrow>"

    def scripted(self) -> str:
        """One thing with what is written below and above it."""
        is_limit = self.tokens[self.at] in _LIMITS
        base = self.one()
        below = above = ""
        while self.at < len(self.tokens) and self.tokens[self.at] in "_^'":
            token = self.take()
            if token == "_":
                below = self.one()
            else:
                above += "<mo>′</mo>" if token == "'" else self.one()
        tags = ("munder", "mover", "munderover") if is_limit and self.block else (
            "msub", "msup", "msubsup"
        )  # fmt: skip
        tag = {(True, False): tags[0], (False, True): tags[1], (True, True): tags[2]}.get(
            (bool(below), bool(above))
        )
        return base if tag is None else f"<{tag}>{base}{below}{above}</{tag}>"

    def one(self) -> str:
        """One letter, number, sign, command or group."""
        token = self.take()
        if token == "{":
            return self.row("}")
        if token[0].isdigit():
            return f"<mn>{token}</mn>"
        if token[0] != "\\":
            return f"<mi>{token}</mi>" if token.isalpha() else _sign(token)
        name = token[1:]
        if name == "frac":
            return f"<mfrac>{self.one()}{self.one()}</mfrac>"
        if name == "sqrt":
            return f"<msqrt>{self.one()}</msqrt>"
        if name in _ACCENTS:
            return f"<mover accent='true'>{self.one()}<mo>{_ACCENTS[name]}</mo></mover>"
        if name in ("mathrm", "text"):
            return f'<mi mathvariant="normal">{self.letters()}</mi>'
        if name in _SPACES:
            return f'<mspace width="{_SPACES[name]}"/>'
        if name not in _SYMBOLS:
            raise ValueError(f"\\{name} in {self.tex!r} is not known. Add it to mkdocs_hooks.py.")
        sign = _SYMBOLS[name]
        return f"<mi>{sign}</mi>" if sign in _LETTERS or sign.isalpha() else f"<mo>{sign}</mo>"

    def letters(self) -> str:
        self.take("{")
        end = self.tokens.index("}", self.at)
        word = "".join(self.tokens[self.at : end])
        self.at = end + 1
        return escape(word)

    def take(self, wanted: str | None = None) -> str:
        if self.at == len(self.tokens):
            raise ValueError(f"{self.tex!r} ends too early.")
        token = self.tokens[self.at]
        if wanted is not None and token != wanted:
            raise ValueError(f"{self.tex!r}: wanted {wanted!r} where {token!r} is.")
        self.at += 1
        return token


def _sign(sign: str) -> str:
    """An operator; brackets do not stretch, and the minus is not a hyphen."""
    fixed = ' stretchy="false"' if sign in "()[]" else ""
    return f"<mo{fixed}>{'−' if sign == '-' else escape(sign)}</mo>"


def mathml(tex: str, *, block: bool = False) -> str:
    """A formula in TeX as a MathML element."""
    display = ' display="block"' if block else ""
    return f"<math{display}>{_Formula(tex, block).row()}</math>"


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """MkDocs hands in the text of each page."""
    folder = posixpath.dirname(page.file.src_uri)

    def named(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(folder, match["target"]))
        if not target.startswith("../"):
            return match[0]
        path = target.removeprefix("../").partition("#")[0]
        return f"`{path}`" if match["text"] == path else f"{match['text']} (`{path}`)"

    return _LINK.sub(named, markdown)


def on_page_content(html: str, **_: Any) -> str:
    """MkDocs hands in the HTML of each page."""
    html = _BLOCK.sub(lambda match: mathml(unescape(match[1]), block=True), html)
    return _INLINE.sub(lambda match: mathml(unescape(match[1])), html)


class DocstringFormulas(Extension):
    """Formulas of docstrings, as pages write them."""

    def on_object(self, *, obj: Any, **_: Any) -> None:
        """Griffe hands in each function, class and module it has read."""
        if obj.docstring is not None:
            obj.docstring.value = as_page_formulas(obj.docstring.value)


def as_page_formulas(text: str) -> str:
    """Formulas marked for Sphinx, with the `$` of pages."""
    text = re.sub(r":math:`([^`]+)`", r"$\1$", text)
    return re.sub(r"^( *)\.\. math:: (.+)$", r"\1$$\2$$", text, flags=re.MULTILINE)
