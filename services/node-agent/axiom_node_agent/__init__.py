"""The node agent: tells the truth about one GPU host and carries out its plan."""
