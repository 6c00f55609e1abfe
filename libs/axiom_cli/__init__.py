"""The `axiom` command: up, demo, status, doctor, adapters."""
