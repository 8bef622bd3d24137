"""Who leads what: the controller of the cluster, its image, the rules for topics, and the settings in force.

Deciding is pure: `election`, `transitions`, `reassignment`, `isr_changes`, `observers`, `placement`, `topic_rules`, and
`dispatch` for what brokers are told. `runtime` is the shell: it stands for the controllership (`claim`), deals with one
event at a time (`event_queue`) in a `reign`, writes in bulk (`ledger`) and has brokers told (`couriers`). The image is
what every other room reads.
"""
