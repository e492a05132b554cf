"""Systems: models with a training loss and a way to generate, chosen by ``system=``."""
