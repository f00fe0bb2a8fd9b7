"""The generated parts of docs/architecture.md: layers, modules by package, the path of a fit."""

import ast
import json
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

PROJECT = Path(__file__).parents[1]
PACKAGE = PROJECT / "src" / "knoi"
SHOWN = 6  # functions per module on the path of a fit


def layers(_: Path | None = None) -> str:
    """The layers that import-linter enforces, from pyproject.toml."""
    tools = tomllib.loads((PROJECT / "pyproject.toml").read_text())["tool"]
    (found,) = [c["layers"] for c in tools["importlinter"]["contracts"] if c["type"] == "layers"]
    names = "\n".join(layer.replace("knoi.", "") for layer in found)
    return f"```text\n{names}\n```\n"


def modules(_: Path | None = None) -> str:
    """A table per package: each module with the first line of its docstring."""
    packages = [file.parent for file in sorted(PACKAGE.glob("*/__init__.py"))]
    return "\n".join(
        [
            _section("knoi", "", _modules(PACKAGE)),
            *(_section(f"knoi.{one.name}", _role(one), _modules(one)) for one in packages),
        ]
    )


def _section(name: str, role: str, files: list[Path]) -> str:
    rows = "".join(
        f"| `{file.relative_to(PACKAGE).as_posix()}` | {_role(file)} |\n" for file in files
    )
    heading = f"### `{name}`\n\n" + (f"{role}\n\n" if role else "")
    return f"{heading}| module | role |\n| --- | --- |\n{rows}"


def _modules(folder: Path) -> list[Path]:
    """The modules of a package and of packages inside it; at the top its own modules only."""
    found = folder.glob("*.py") if folder == PACKAGE else folder.rglob("*.py")
    return sorted(file for file in found if file.name != "__init__.py")


def _role(path: Path) -> str:
    """The first line of a module's docstring."""
    file = path / "__init__.py" if path.is_dir() else path
    docstring = ast.get_docstring(ast.parse(file.read_text())) or ""
    return docstring.splitlines()[0].replace("|", "\\|") if docstring else ""


def path_of_a_fit(_: Path | None = None) -> str:
    """The modules that a fit calls, in order of the first call, with the functions."""
    # In a fresh process: functions whose result is cached would be missing in a used one.
    command = [sys.executable, "-m", "benchmarks.fit_path", "--json"]
    stages = json.loads(subprocess.check_output(command, cwd=PROJECT, text=True))
    lines = []
    for stage, (heading, found) in enumerate(stages.items()):
        if found:
            more = "further " if stage else ""
            lines += ["", f"{heading.capitalize()}: {len(found)} {more}modules.", ""]
            lines += _numbered(found)
    return "\n".join(lines) + "\n"


def _numbered(found: dict[str, list[str]]) -> Iterator[str]:
    for number, (module, functions) in enumerate(found.items(), 1):
        public = [name for name in functions if "._" not in name and not name.startswith("_")]
        shown = ", ".join(f"`{name}`" for name in public[:SHOWN])
        yield f"{number}. `{module}.py`: {shown}{', ...' if len(public) > SHOWN else ''}"


TABLES = {"layers": layers, "modules": modules, "fit_path": path_of_a_fit}
