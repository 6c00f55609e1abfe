"""The stack that `axiom up`, the demo and the tests start: servers and services as children."""
