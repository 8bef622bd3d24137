"""Consumer groups: who is a member, who owns which partition, how far each group has read."""
