"""Small measured trials of the parts that the system rests on; docs/adr/0002-parts-tried.md tells what they showed."""
