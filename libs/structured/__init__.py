"""Answers that must match a grammar: from a client's grammar to the ids that may follow. Knows no engine."""
