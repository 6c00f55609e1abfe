"""Workloads made from public traces: readers, and the replay that a run follows."""
