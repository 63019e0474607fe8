"""Tiny services for the worker tests."""
