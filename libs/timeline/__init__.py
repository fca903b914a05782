"""From the records of a run to what became of a request: its leaves, its story, its shapes. Pure."""
