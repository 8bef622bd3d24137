"""Who somebody is. SANS-IO: exchanges of tokens, as state machines over bytes."""
