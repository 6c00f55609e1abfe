"""Protocols of everything outside: each has one real driver and one fake, under one test suite."""
