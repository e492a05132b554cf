"""``python -m rdm.plan``: parameters, memory and time of a run, estimated before it is started."""
