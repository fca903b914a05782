"""Triton kernels, one operation per file, each beside a plain torch reference one folder up."""
