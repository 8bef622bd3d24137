"""Messages that brokers and clients store inside records rather than send: declared and encoded alike."""
