"""Decode a split and record its metrics: ``python evaluate.py ckpt=outputs/<run>``; see conf/evaluate.yaml."""

from rdm.app.scripts import evaluate

if __name__ == "__main__":
    evaluate()
