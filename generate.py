"""Decode texts: ``python generate.py ckpt=outputs/<run> text="..." [trace=true]``; see conf/generate.yaml."""

from rdm.app.scripts import generate

if __name__ == "__main__":
    generate()
