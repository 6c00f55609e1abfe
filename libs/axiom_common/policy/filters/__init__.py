"""One file a filter: which engines can't serve this request, each with one closed reason."""
