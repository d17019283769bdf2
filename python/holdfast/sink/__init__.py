"""Sinks: where output goes."""
