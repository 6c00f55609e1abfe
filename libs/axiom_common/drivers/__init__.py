"""The real drivers behind the ports."""
