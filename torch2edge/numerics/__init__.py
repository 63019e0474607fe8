"""Is it still the same model?  Inputs, metrics, tolerance, comparison and the report; numpy only."""
