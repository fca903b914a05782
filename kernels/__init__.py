"""One operation per file: tensors in, tensors out. The torch references define what is right."""
