"""One file a scorer: how good an engine is in one respect."""
