"""Names and shapes on the wire, each defined once; a change of any breaks a golden vector."""
