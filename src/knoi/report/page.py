"""Self-contained HTML pages: Jinja2 templates with the style, scripts, plotly.js and data inside.

A page opens from disk and loads nothing from the network. Templates escape every text, and a
content security policy allows only the scripts the page was built with.
"""

import base64
import hashlib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from knoi.exceptions import require
from knoi.fileio import atomic_write_text

# Drawing helpers and the charts that every page shares; a page adds its own scripts after them.
_SHARED_SCRIPTS = ("page.js", "charts.js")
_INT16_MAX = 2**15 - 1


@dataclass(frozen=True)
class Page:
    """One HTML page: a template and what it shows.

    Parameters
    ----------
    template : str
        Name of a file in `templates/`.
    values : mapping
        Variables of the template. Text in them is escaped.
    data : mapping
        JSON for the scripts.
    scripts : tuple of str
        Names of files in `static/` to run after those that all pages share.
    """

    template: str
    values: Mapping[str, Any]
    data: Mapping[str, Any]
    scripts: tuple[str, ...] = ()

    def html(self) -> str:
        """Return the whole page."""
        require_report_extra()
        parts = "\n".join(_static(name) for name in (*_SHARED_SCRIPTS, *self.scripts))
        # Browsers hash scripts with Unix line endings.
        plotly_js = require("plotly.offline", "report", "A report").get_plotlyjs()
        scripts = (plotly_js.replace("\r\n", "\n"), f'"use strict";\n(() => {{\n{parts}\n}})();')
        rendered: str = (
            _environment()
            .get_template(self.template)
            .render(
                self.values,
                data=self.data,
                style=_static("page.css"),
                scripts=scripts,
                policy=_content_security_policy(scripts),
            )
        )
        return rendered

    def write(self, path: str | Path) -> None:
        """Write the page to a file. An existing file is replaced once the new one is complete."""
        # File names that are not valid UTF-8 may be part of the text.
        atomic_write_text(path, self.html(), errors="replace")


def require_report_extra() -> None:
    """Raise `MissingExtraError` unless plotly and Jinja2 are installed."""
    for module in ("plotly", "jinja2"):
        require(module, "report", "A report")


def pack_table(values: NDArray[Any], *, integers: bool = False) -> dict[str, Any]:
    """Encode a table (n, m) of finite numbers as 16-bit integers; `unpack` in `page.js` decodes it.

    Columns are stored in units of 1/32767 of their largest absolute value, or with `integers` as
    integers up to 32767, exactly.
    """
    values = np.asarray(values, dtype=np.float64)
    largest = np.abs(values).max(axis=0) if len(values) else np.zeros(values.shape[1])
    units = np.where(largest > 1e-300, largest, 1.0) / _INT16_MAX
    if integers:
        units = np.ones_like(largest)
    return {
        "shape": list(values.shape),
        "units": [float(f"{unit:.7g}") for unit in units],
        "data": base64.b64encode(np.rint(values / units).astype("<i2").tobytes()).decode("ascii"),
    }


def round_values(values: Iterable[Any], digits: int = 4) -> list[float | None]:
    """Round to significant digits, for JSON. Values that are not finite become None."""
    numbers = (float(value) for value in values)
    return [float(f"{x:.{digits}g}") if math.isfinite(x) else None for x in numbers]


@cache
def _environment() -> Any:
    jinja2 = require("jinja2", "report", "A report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("knoi.report"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    # `tojson` escapes <, >, & and ' as well, so that no text can end the script element.
    environment.policies["json.dumps_kwargs"] = {"allow_nan": False, "separators": (",", ":")}
    environment.filters["commas"] = lambda number: f"{number:,}"
    environment.filters["fixed"] = lambda number, digits: f"{number:.{digits}f}"
    environment.filters["percent"] = lambda number, digits=1: f"{number:.{digits}%}"
    return environment


def _static(name: str) -> str:
    return files("knoi.report").joinpath("static", name).read_text(encoding="utf-8")


def _content_security_policy(scripts: Iterable[str]) -> str:
    """Allow nothing from outside, and of scripts only these, by their hashes."""
    digests = (hashlib.sha256(script.encode("utf-8")).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(d).decode('ascii')}'" for d in digests)
    return (
        f"default-src 'none'; img-src data: blob:; style-src 'unsafe-inline'; script-src {allowed}"
    )
