"""Memory as the operating system reports it; uploads; triangular solves and leading SVD."""

import dataclasses
import math

import numpy as np
import pytest
import scipy.linalg
import scipy.sparse
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import knoi.arrays.backend
from knoi.arrays.backend import (
    SOLVE_BLOCK,
    Placed,
    available_ram,
    numpy_backend,
    peak_memory,
    solve_lower,
    top_eigh,
    top_svd,
    torch_backend,
)

NUMPY = numpy_backend()


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


class TestPlaced:
    ROWS = np.arange(12, dtype=np.float64).reshape(4, 3)

    def test_rows_are_uploaded_once(self):
        placed = Placed(self.ROWS, backend := torch_backend("cpu", "float32"))
        assert backend.asarray(placed) is placed.get()
        np.testing.assert_array_equal(placed.get().numpy(), self.ROWS)
        assert Placed(self.ROWS, NUMPY).get() is self.ROWS

    @pytest.mark.parametrize("kind", [np.array, scipy.sparse.csr_array])
    def test_cuda_copies_ahead_on_a_stream_of_its_own(self, kind, monkeypatch):
        """The order of calls; torch on this machine may have no CUDA."""
        calls, empty = [], torch.empty

        class Stream:
            device = torch.device("cpu")

            def __init__(self, name):
                self.name = name

            def __enter__(self):
                calls.append(f"on {self.name}")

            def __exit__(self, *_):
                calls.append("back")

            def record_event(self):
                return "the end of the copy"

            def wait_event(self, event):
                calls.append(f"{self.name} waits for {event}")

        def pinned(*args, pin_memory, **kwargs):
            calls.append("pinned" if pin_memory else "not pinned")
            return empty(*args, **kwargs)

        def used_by(tensor, stream):
            calls.append(f"used by {stream.name}")

        backend = dataclasses.replace(torch_backend("cpu", "float32"), device="cuda")
        monkeypatch.setattr("knoi.arrays.backend._has_cuda", lambda: True)
        monkeypatch.setattr("knoi.arrays.backend._upload_stream", lambda _: Stream("side"))
        monkeypatch.setattr(torch, "empty", pinned)
        monkeypatch.setattr(torch.cuda, "stream", lambda stream: stream)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: Stream("main"))
        monkeypatch.setattr(torch.Tensor, "record_stream", used_by)
        placed = Placed(kind(self.ROWS), backend)
        assert calls == ["pinned", "on side", "back"]
        np.testing.assert_array_equal(placed.get().numpy(), self.ROWS)
        assert calls[3:] == ["main waits for the end of the copy", "used by main"]


class TestSolveLower:
    """Triangular systems in blocks."""

    @staticmethod
    def system(M, columns, dtype=np.float64, seed=0):
        rng = np.random.default_rng(seed)
        C = rng.standard_normal((M, M)) / np.sqrt(M)
        C[np.arange(M), np.arange(M)] = rng.uniform(1.0, 3.0, M)
        return C.astype(dtype), rng.standard_normal((M, columns)).astype(dtype)

    @pytest.mark.parametrize("transposed", [False, True])
    @settings(max_examples=40, deadline=None)
    @given(
        M=st.integers(1, 3 * SOLVE_BLOCK + 5),
        columns=st.integers(0, 9),
        order=st.sampled_from("CF"),
        seed=st.integers(0, 9),
    )
    def test_solves_the_system(self, transposed, M, columns, order, seed):
        C, B = self.system(M, columns, seed=seed)
        whole = np.tril(C)
        X = solve_lower(np.asarray(C, order=order), B, NUMPY, transposed=transposed)
        np.testing.assert_allclose((whole.T if transposed else whole) @ X, B, atol=1e-9)

    @pytest.mark.parametrize("transposed", [False, True])
    def test_keeps_float32_and_reads_only_the_lower_triangle(self, transposed):
        C, B = self.system(2 * SOLVE_BLOCK + 3, 4, np.float32)
        X = solve_lower(C, B, NUMPY, transposed=transposed)
        assert X.dtype == np.float32
        C[np.triu_indices(len(C), 1)] = np.nan
        for one in (C, B):
            one.setflags(write=False)
        np.testing.assert_array_equal(solve_lower(C, B, NUMPY, transposed=transposed), X)

    def test_scipy_solves_only_the_diagonal_blocks(self, monkeypatch):
        """Its solver holds the GIL, which all threads need."""
        sizes = []
        real = scipy.linalg.solve_triangular
        monkeypatch.setattr(
            scipy.linalg,
            "solve_triangular",
            lambda C, *rest, **options: sizes.append(len(C)) or real(C, *rest, **options),
        )
        C, B = self.system(3 * SOLVE_BLOCK + 7, 2)
        solve_lower(C, B, NUMPY)
        assert sizes == [SOLVE_BLOCK, SOLVE_BLOCK, SOLVE_BLOCK, 7]


def matrices():
    """Matrices and how many of their singular triplets are wanted."""
    rng = np.random.default_rng(3)
    normal = rng.standard_normal
    left, right = (np.linalg.qr(normal((300, 300)))[0] for _ in range(2))
    s = np.concatenate([np.ones(5), np.full(20, 0.999), np.linspace(0.9, 0, 275)])
    equal = np.eye(133) * 1e-9
    equal[5, 7] = 1e-20
    return {
        "small": (normal((30, 20)), 5),
        "decaying values": ((left * 0.95 ** np.arange(300)) @ right.T, 5),
        "tall": (normal((400, 300)), 6),
        "wide": (normal((250, 500)), 10),
        "nearly equal values": ((left * s) @ right.T, 10),
        "equal values": (equal, 2),
        "low rank": (normal((300, 2)) @ normal((2, 200)), 4),
        "zero": (np.zeros((100, 80)), 3),
        "tiny": (normal((100, 80)) * 1e-300, 3),
        "squares underflow": (normal((100, 80)) * 1e-170, 3),
    }


@pytest.mark.parametrize("iterated", [False, True])
@pytest.mark.parametrize(("T", "k"), matrices().values(), ids=matrices())
def test_top_svd(backend, T, k, iterated, monkeypatch):
    monkeypatch.setattr(knoi.arrays.backend, "KRYLOV_SIZE", 0 if iterated else math.inf)
    U, s, V = (backend.to_numpy(a) for a in top_svd(backend.asarray(T), k, backend))
    assert (U.shape, V.shape) == ((T.shape[0], k), (T.shape[1], k))
    expected = np.linalg.svd(T, compute_uv=False)[:k]
    np.testing.assert_allclose(s, expected, rtol=1e-10, atol=1e-12 * expected[0])
    np.testing.assert_allclose(T @ V, U * s, atol=1e-11 * s[0])
    for vectors in (U, V):
        np.testing.assert_allclose(vectors.T @ vectors, np.eye(k), atol=1e-10)


def test_leading_singular_vectors_of_a_large_matrix_need_no_decomposition(monkeypatch):
    T, k = matrices()["decaying values"]
    expected = top_svd(T, k, NUMPY)
    monkeypatch.setattr(knoi.arrays.backend, "KRYLOV_SIZE", len(T))
    sizes = []

    def recorded(S, *rest):
        sizes.append(len(S))
        return top_eigh(S, *rest)

    monkeypatch.setattr(knoi.arrays.backend, "top_eigh", recorded)
    for ours, theirs in zip(top_svd(T, k, NUMPY), expected, strict=True):
        np.testing.assert_allclose(np.abs(ours), np.abs(theirs), atol=1e-10)
    assert max(sizes) < len(T)
