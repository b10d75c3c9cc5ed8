"""What is optimised: parametric problems, the two families of the paper, and grids.

Nothing in this room knows how a problem is solved, learnt or measured.
"""
