"""The areas of Admin, one module each: what it can be asked there, and the plain values that it takes and gives."""
