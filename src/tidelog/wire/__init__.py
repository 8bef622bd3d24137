"""Kafka's wire protocol as data: messages declared once, flat codecs compiled per version, no IO.

`declare` is the vocabulary, `messages/` the declarations (one module per API), `generate` turns a declaration into
Python source for one version, `codec` compiles and caches it, `headers` frames requests and replies.
"""
