"""What the artist sees: thin nodes that check their inputs, call `sampler_core` and wrap the result."""
