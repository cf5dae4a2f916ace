"""What this engine reaches on this machine: ``infer-console bench engine``. No other part imports it."""
