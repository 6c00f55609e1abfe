"""`axiom bench`: what Axiom costs, measured beside others on the same work."""
