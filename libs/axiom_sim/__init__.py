"""The simulated engine, the fleet simulator and readers of public traces."""
