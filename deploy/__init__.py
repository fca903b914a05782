"""Ways to run Headrace: the local supervisor."""
