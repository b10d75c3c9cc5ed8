"""How belief is formed: the wall-clock budget, the paper's learners and every baseline."""
