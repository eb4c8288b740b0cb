"""Training of the memory model: examples from conversations, cached features, the loop, its checkpoints and log."""
