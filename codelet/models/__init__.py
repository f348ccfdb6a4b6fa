"""Models written in codelets. They see the language alone: no lowering, no machine."""
