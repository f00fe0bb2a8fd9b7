"""Files are written whole or not at all."""

import errno
import io
import os
import stat
from pathlib import Path

import pytest

from knoi.exceptions import InputError, InputTypeError, ModelFileError, SourceNotFoundError
from knoi.persistence import (
    model_file,
    read_model,
    write_model,
)
from tests.persistence.models import HEADER, TENSORS, raises_exactly


def test_paths_that_cannot_be_written(tmp_path):
    root = Path(os.path.realpath(tmp_path))
    with raises_exactly(
        SourceNotFoundError,
        f"The directory {root / 'no'} does not exist, so m.knoi cannot be written there. "
        "Create it first.",
    ):
        write_model(tmp_path / "no" / "m.knoi", {}, {})
    with raises_exactly(
        InputError,
        f"{root} is not a file, so no model can be written there. "
        "Add a file name, such as model.knoi.",
    ):
        write_model(str(tmp_path), {}, {})
    with raises_exactly(InputTypeError, "path is of type int. Give a str or a Path."):
        write_model(3, {}, {})
    with pytest.raises(InputError, match="null character"):
        write_model(str(tmp_path / "a\0b"), {}, {})
    assert os.listdir(tmp_path) == []


def test_paths_that_cannot_be_read(tmp_path):
    with raises_exactly(
        SourceNotFoundError, f"There is no model file at {tmp_path / 'no'}. Check the path."
    ):
        read_model(tmp_path / "no")
    with raises_exactly(
        ModelFileError,
        f"{tmp_path} is not a file, so it holds no model. Give the path of a model file.",
    ):
        read_model(str(tmp_path))
    with raises_exactly(InputTypeError, "path is of type bytes. Give a str or a Path."):
        read_model(b"model.knoi")


@pytest.mark.skipif(os.name != "posix", reason="permissions and links as POSIX has them")
def test_a_link_stays_a_link_and_permissions_are_the_usual_ones(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    target = tmp_path / "target.knoi"
    link = tmp_path / "link.knoi"
    link.symlink_to(target)
    write_model(link, {"a": 1}, {})
    assert link.is_symlink()
    assert read_model(target).header["a"] == 1
    usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE(target.stat().st_mode) == usual


class FailingFile:
    """A file that takes `room` writes and then fails as a full disk or an interrupt does."""

    def __init__(self, file, room, error):
        self.file, self.room, self.error = file, room, error

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self.file.close()

    def __getattr__(self, name):
        return getattr(self.file, name)

    def write(self, data):
        if self.room == 0:
            raise self.error
        self.room -= 1
        return self.file.write(data)


FAILURES = [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]


@pytest.mark.parametrize("error", FAILURES, ids=["disk_full", "interrupt"])
@pytest.mark.parametrize("existing", [True, False])
@pytest.mark.parametrize("failing", [0, 1, 3, "fsync", "replace"])
def test_a_failed_write_leaves_everything_as_it_was(path, monkeypatch, error, existing, failing):
    if existing:
        write_model(path, {"old": 1}, {})
    before = {file.name: file.read_bytes() for file in path.parent.iterdir()}
    seen = []

    def fail(*_):
        seen.extend(os.listdir(path.parent))
        raise error

    if isinstance(failing, str):
        monkeypatch.setattr(os, failing, fail)
    else:
        monkeypatch.setattr(
            model_file,
            "open",
            lambda *args: FailingFile(io.FileIO(*args), failing, error),
            raising=False,
        )
    with pytest.raises(type(error)):
        write_model(path, HEADER, TENSORS)
    monkeypatch.undo()
    assert {file.name: file.read_bytes() for file in path.parent.iterdir()} == before
    # The new content was in the same directory, beside the old, when the late steps failed.
    assert not isinstance(failing, str) or len(seen) == len(before) + 1


def test_content_is_on_disk_before_it_gets_its_name(path, monkeypatch):
    steps = []
    fsync, replace = os.fsync, os.replace

    def traced_fsync(descriptor):
        steps.append(("fsync", os.fstat(descriptor).st_size))
        fsync(descriptor)

    def traced_replace(*names):
        steps.append(("replace", os.path.getsize(names[0])))
        replace(*names)

    monkeypatch.setattr(os, "fsync", traced_fsync)
    monkeypatch.setattr(os, "replace", traced_replace)
    write_model(path, HEADER, TENSORS)
    size = path.stat().st_size
    assert steps == [("fsync", size), ("replace", size)]
    assert os.listdir(path.parent) == [path.name]
