"""Pictures of graphs: links between vertices, their layout, and their rendering. In the extra `draw`."""
