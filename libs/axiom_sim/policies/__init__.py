"""The policies that a simulated fleet is routed by: Axiom's own, and the baselines."""
