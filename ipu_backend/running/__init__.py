"""Running: the engine, the state that it keeps between runs and in checkpoints, and its streams."""
