"""Telemetry: folds node reports into the shadow cache."""
