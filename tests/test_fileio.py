"""Files are written whole or not at all."""

import os
import stat

import pytest

from knoi.fileio import atomic_write, atomic_write_text, remove_unfinished


@pytest.mark.parametrize(
    ("failing", "error"),
    [("block", KeyboardInterrupt()), ("fsync", OSError("disk full")), ("replace", OSError("gone"))],
    ids=["block", "fsync", "replace"],
)
def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path, monkeypatch, failing, error):
    path = tmp_path / "file.txt"
    atomic_write_text(path, "old")

    def fail(*_):
        raise error

    def write():
        with atomic_write(path) as temporary:
            temporary.write_text("new")
            assert (temporary.parent.parent, temporary.name) == (tmp_path, path.name)
            temporary.with_suffix(".other").write_text("a file that a writer makes besides")
            if failing == "block":
                fail()

    if failing != "block":
        monkeypatch.setattr(os, failing, fail)
    with pytest.raises(type(error)):
        write()
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file.txt"]


def test_content_is_on_disk_before_it_gets_its_name(tmp_path, monkeypatch):
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
    atomic_write_text(tmp_path / "file", "✓" * 1000)
    assert steps == [("fsync", 3000), ("replace", 3000)]


@pytest.mark.skipif(os.name != "posix", reason="permissions and links as POSIX has them")
def test_a_link_stays_a_link_and_permissions_are_the_usual_ones(tmp_path):
    (tmp_path / "plain").write_bytes(b"")
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to(target)
    atomic_write_text(link, "text")
    assert link.is_symlink()
    assert target.read_text() == "text"
    usual = stat.S_IMODE((tmp_path / "plain").stat().st_mode)
    assert stat.S_IMODE(target.stat().st_mode) == usual


def test_what_a_killed_process_left_is_removed(tmp_path):
    (tmp_path / "kept.txt").write_text("kept")
    with atomic_write(tmp_path / "file") as temporary:
        temporary.write_text("as if the process was killed here")
        remove_unfinished(tmp_path)
        assert os.listdir(tmp_path) == ["kept.txt"]
        temporary.parent.mkdir()
        temporary.write_text("")
    assert sorted(os.listdir(tmp_path)) == ["file", "kept.txt"]
