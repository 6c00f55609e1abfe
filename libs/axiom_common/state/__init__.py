"""How nouns change: an event and a state in, the next state and instructions out; pure."""
