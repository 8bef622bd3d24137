"""Being a member of a consumer group.

PURE   member.py (what both protocols have in common), classic.py, modern.py: decide what to ask the coordinator and
       what the application must give up or may begin to read; subscriptions.py: what classic members tell each other
SHELL  coordinator.py finds the coordinator and asks it, membership.py does what a member decides, commits.py stores
       and fetches positions
"""
