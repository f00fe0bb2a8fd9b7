"""Memory, as the operating system reports it."""

import numpy as np

from knoi.arrays.backend import available_ram, peak_memory


def test_peak_memory_includes_what_was_held():
    held = np.ones(40_000_000)  # 320 MB, touched
    peak = peak_memory()
    assert peak is not None
    assert held.nbytes <= peak < held.nbytes + available_ram()
    del held
    assert peak_memory() >= 0.99 * peak  # the count is approximate


def test_memory_without_proc(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    before = peak_memory()
    monkeypatch.setattr("builtins.open", missing)
    assert peak_memory() >= 0.5 * before
    assert available_ram() > 2**26
