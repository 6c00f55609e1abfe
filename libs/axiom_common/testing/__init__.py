"""Fakes behind the ports; no product code can import them."""
