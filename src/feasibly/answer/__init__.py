"""How belief becomes a decision: mean, svp, conditioned, polished, solved, auto."""
