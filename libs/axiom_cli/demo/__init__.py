"""`axiom demo`: one workload through three policies, and what became of it."""
