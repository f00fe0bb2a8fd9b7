"""A FITTED MODEL ON DISK: one file that is read without running anything in it."""

from knoi.persistence.model_file import FORMAT, ModelFile, read_model, write_model
from knoi.persistence.state import flatten_state, unflatten_state

__all__ = ["FORMAT", "ModelFile", "flatten_state", "read_model", "unflatten_state", "write_model"]
