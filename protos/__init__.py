"""Wire schemas, with the generated code beside them."""
