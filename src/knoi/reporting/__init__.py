"""WHAT A REPORT OF A FITTED MODEL IS MADE OF: rows to show, measures, sections, and scripts."""
