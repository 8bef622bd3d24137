"""Record batches as bytes: looking at them, checking them, taking them apart, building them. No I/O, no clock."""
