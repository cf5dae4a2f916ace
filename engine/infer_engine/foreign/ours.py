"""A gateway of ours, where it is taken for somebody else's server: it tells vLLM's names too."""

#: What it is called there, and how the names begin that nobody else's metrics have.
OUR_GATEWAY, OUR_PREFIX = "infer-console gateway", "infer_"
#: What shows all of it.
OUR_COMMAND = "infer-console --connect unix:///PATH (its control socket)"
