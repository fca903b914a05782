"""The bench's arithmetic: requests, figures, limits, ratios, pages, and the reader of streams."""
