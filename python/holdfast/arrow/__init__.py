"""Arrow types and arrays taken apart and put together again. Knows nothing of Holdfast."""
