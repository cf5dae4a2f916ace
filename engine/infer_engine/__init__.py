"""The inference engine and the server around it: the side that infer-console watches."""
