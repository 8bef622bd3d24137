"""Transactions of a producer: what it may do when (PURE), what a coordinator's answers mean (PURE), and who asks it."""
