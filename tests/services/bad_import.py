"""A service whose import fails as a broken installation does."""

raise RuntimeError("built for another numpy")
