"""The `axiom` command: a local fleet, an operator's client of the admin API, benchmarks."""
