"""Tests of traces made of records."""
