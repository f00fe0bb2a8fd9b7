"""A model file for every test."""

import pytest

from knoi.persistence import write_model
from tests.persistence.models import HEADER, TENSORS


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.knoi"


@pytest.fixture
def content(path):
    write_model(path, HEADER, TENSORS)
    return path.read_bytes()
