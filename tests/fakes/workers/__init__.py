"""The workers of a stack with the fake engine, by the names of the real services."""
