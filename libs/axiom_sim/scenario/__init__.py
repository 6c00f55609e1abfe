"""Scenarios: short YAML files that say what a simulated fleet is, is asked, and suffers."""
