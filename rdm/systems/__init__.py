"""What is trained and evaluated: a :class:`~rdm.systems.base.System`, chosen by ``system=``."""
