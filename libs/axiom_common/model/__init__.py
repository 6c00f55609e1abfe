"""The nouns: frozen, slotted values with no behaviour beyond their invariants."""
