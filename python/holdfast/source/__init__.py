"""Sources: where streams come from."""
