"""A service whose package is not installed."""

import no_such_package_anywhere  # type: ignore[import-not-found] # noqa: F401
