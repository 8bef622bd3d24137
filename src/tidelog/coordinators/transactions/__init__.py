"""Transactions, decided purely: who holds a transactional id, what is in his transaction, and how it ends."""
