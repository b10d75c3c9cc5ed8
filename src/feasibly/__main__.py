"""`python -m feasibly`: the command line."""

from feasibly.cli import main

main()
