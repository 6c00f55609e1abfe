"""The commands of `axiom`, one module a group: each reads its arguments and hands over."""
