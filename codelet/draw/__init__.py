"""Pictures of graphs: links between vertices, where each lies, and what is drawn of it. In the extra `draw`."""
