"""Who owns what: the cluster's image, the rules for topics, and the shell that writes them to the znode store.

Deciding (`placement`, `topic_rules`) is pure. `topics` and `producer_ids` are thin shells over the znode store; the
image is what every other room reads.
"""
