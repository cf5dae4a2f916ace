"""What the console costs to paint: ``infer-console bench console``."""
