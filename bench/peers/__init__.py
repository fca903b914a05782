"""The servers that Headrace is measured beside: how each is installed, and the one set of flags it runs with."""
