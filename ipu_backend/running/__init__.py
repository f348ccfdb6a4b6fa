"""Running: the engine, the state that it keeps between runs, and its streams."""
