"""The event model of a fleet: routing quality, measured in virtual time."""
