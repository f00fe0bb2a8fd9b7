"""HTML reports: one self-contained page per fitted model, and the demo's page in the same style."""

from knoi.report.content import model_report
from knoi.report.page import Page, require_report_extra

__all__ = ["Page", "model_report", "require_report_extra"]
