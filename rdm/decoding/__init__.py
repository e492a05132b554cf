"""Decoding: proposals, routers and the loop that turns noise into text."""
