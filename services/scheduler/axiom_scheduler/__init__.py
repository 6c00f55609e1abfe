"""The scheduler: decides what no single region can; plans, one key a node."""
