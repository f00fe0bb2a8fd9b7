"""The state of an object, split into what is JSON and what is a tensor."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from knoi.exceptions import InputError, InputTypeError, ModelFileError
from knoi.persistence import (
    flatten_state,
    read_model,
    unflatten_state,
    write_model,
)
from tests.persistence.models import (
    arrays,
    json_keys,
    json_leaves,
    json_values,
    raises_exactly,
    same,
)

states = st.recursive(
    st.dictionaries(json_keys, json_values | arrays, max_size=4),
    lambda inner: st.dictionaries(json_keys, inner | arrays | json_leaves, max_size=3),
    max_leaves=6,
)


@settings(deadline=None, max_examples=200)
@given(state=states)
def test_a_state_splits_and_comes_back(state):
    json_part, tensors = flatten_state(state)
    json.dumps(json_part)
    assert all(isinstance(array, np.ndarray) for array in tensors.values())
    assert same(unflatten_state(json_part, tensors), state)


def test_a_state_through_a_file(path):
    state = {
        "map": {"W": np.ones((2, 3), np.float32).T, "kernel": {"name": "rbf", "width": 1.5}},
        "mean": np.array(2.0),
        "only_arrays": {"inner": {"u": np.empty((0, 2))}},
        "nothing": {},
        "steps": [1, 2],
    }
    json_part, tensors = flatten_state(state)
    assert set(tensors) == {"map/W", "mean", "only_arrays/inner/u"}
    assert json_part["map"] == {"kernel": {"name": "rbf", "width": 1.5}}
    write_model(path, {"state": json_part}, tensors)
    model = read_model(path)
    assert same(unflatten_state(model.header["state"], model.tensors), state)


def test_splitting_changes_neither_the_state_nor_the_parts():
    state = {"a": {"b": np.zeros(2), "c": [1]}}
    json_part, tensors = flatten_state(state)
    again = unflatten_state(json_part, tensors)
    again["a"]["c"].append(2)
    again["new"] = 1
    assert json_part == {"a": {"c": [1]}}
    assert same(state, {"a": {"b": np.zeros(2), "c": [1]}})


@pytest.mark.parametrize(
    ("state", "error", "text"),
    [
        (
            {"a": {"b/c": 1}},
            InputError,
            "state['a'] has the key 'b/c', but '/' separates the keys in a tensor's name. "
            "Rename the key.",
        ),
        (
            {"a": [np.zeros(2)]},
            InputTypeError,
            "state['a'][0] is of type ndarray; a model file takes strings, numbers, booleans, "
            "None, lists and dicts. Store arrays as tensors, in dicts and not in lists.",
        ),
        (
            {"a": {"b": {0}}},
            InputTypeError,
            "state['a']['b'] is of type set; a model file takes strings, numbers, booleans, None, "
            "lists and dicts. Convert it first.",
        ),
        (
            {"a": {2: np.zeros(2)}},
            InputTypeError,
            "state['a'] has the key 2 of type int; the keys of a model file are strings. "
            "Convert it first.",
        ),
    ],
)
def test_a_state_that_cannot_be_split(state, error, text):
    with raises_exactly(error, text):
        flatten_state(state)


@pytest.mark.parametrize(
    ("json_part", "tensor"), [({"a": 1}, "a"), ({"a": 1}, "a/b"), ({"a": {}}, "a")]
)
def test_parts_that_do_not_belong_together(json_part, tensor):
    with raises_exactly(
        ModelFileError,
        f"The state has both a value and a tensor on the way to {tensor!r}: its two parts do not "
        "belong together. Save the model again.",
    ):
        unflatten_state(json_part, {tensor: np.zeros(1)})
