"""HTML reports: one self-contained page per fitted model, and the demo's page in the same style."""

from knoi.report.model import model_report

__all__ = ["model_report"]
