"""Train a system: ``python train.py [group=choice ...] [key=value ...]``; see conf/train.yaml."""

from rdm.app.scripts import train

if __name__ == "__main__":
    train()
