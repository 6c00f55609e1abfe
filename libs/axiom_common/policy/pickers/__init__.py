"""One file a picker: which of the candidates wins."""
