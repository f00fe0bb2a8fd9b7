"""Sparse rows in model files."""

import json

import numpy as np
import pytest

from knoi.exceptions import InputError, ModelFileError
from knoi.features import KernelColumns, map_from_state
from knoi.kernels import RBF
from knoi.persistence import flatten_state, unflatten_state
from tests.sparse.cases import D, csr


class TestModelFiles:
    def test_sparse_rows_are_restored(self, views):
        state = {"kind": "x", "rows": views[0], "deep": {"rows": views[1][:0]}, "a": np.ones(3)}
        plain, tensors = flatten_state(state)
        again = unflatten_state(json.loads(json.dumps(plain)), tensors)
        for one, other in ((again["rows"], views[0]), (again["deep"]["rows"], views[1][:0])):
            assert isinstance(one, csr)
            assert one.shape == other.shape
            np.testing.assert_array_equal(one.toarray(), other.toarray())
        np.testing.assert_array_equal(again["a"], np.ones(3))

    @pytest.mark.parametrize(
        ("part", "change", "finding"),
        [
            ("indices", lambda i: i + D, f"it has a column outside 0 to {D - 1}"),
            ("indices", lambda i: i[:-1], "the lengths of its tensors do not agree"),
            ("indices", lambda i: i.astype(np.float64), "its indices are not integers"),
            ("indptr", lambda p: p + 1, "its row pointers are not in order"),
            (
                "indptr",
                lambda p: p[[0, 2, 1, *range(3, len(p))]],
                "its row pointers are not in order",
            ),
            ("data", lambda v: v[None, :], "wanted the tensors data, indices, indptr"),
        ],
    )
    def test_inconsistent_indices_raise(self, part, change, finding, views):
        features = KernelColumns(RBF(1.0), views[0][:20])
        plain, tensors = flatten_state(features.state_dict())
        tensors[f"landmarks/{part}"] = change(tensors[f"landmarks/{part}"])
        expected = f"^The sparse array 'landmarks' of the state is invalid: {finding}"
        with pytest.raises(ModelFileError, match=expected):
            map_from_state(unflatten_state(plain, tensors))

    @pytest.mark.parametrize("shape", [[20], [20, -1], [20.0, D], None])
    def test_invalid_shapes_raise(self, shape, views):
        plain, tensors = flatten_state({"rows": views[0][:20]})
        plain["rows"] = {"$csr": shape}
        with pytest.raises(ModelFileError, match="is not a shape"):
            unflatten_state(plain, tensors)

    def test_the_marker_of_sparse_rows_is_reserved(self):
        with pytest.raises(InputError, match=r"key '\$csr': .* have a meaning in model files"):
            flatten_state({"$csr": [1, 2]})
