"""Memory, as the system tells of it."""

import numpy as np

from knoi.arrays.backend import available_ram, peak_memory


def test_peak_memory_has_seen_what_was_held():
    held = np.ones(40_000_000)  # 320 MB, touched
    peak = peak_memory()
    assert peak is not None
    assert held.nbytes <= peak < held.nbytes + available_ram()
    del held
    assert peak_memory() >= 0.99 * peak  # the system counts a little loosely


def test_without_proc_the_system_is_asked_otherwise(monkeypatch):
    def missing(*_, **__):
        raise FileNotFoundError

    told = peak_memory()
    monkeypatch.setattr("builtins.open", missing)
    assert peak_memory() >= 0.5 * told
