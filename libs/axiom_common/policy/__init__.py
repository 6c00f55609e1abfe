"""What to choose: the one home of decisions; pure functions over frozen values."""
