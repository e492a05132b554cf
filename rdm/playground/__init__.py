"""The playground: a local page on which trained models decode what is typed."""
