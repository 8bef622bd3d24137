"""State machines whose state lives on an internal topic: decide, append, apply, answer.

The cores in `groups/` are plain synchronous code: no clock, no socket, no `await`. They hand out `Decision`s, and the
runtime alone carries them out.
"""
