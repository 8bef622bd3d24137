"""One module per API, request and response side by side."""
