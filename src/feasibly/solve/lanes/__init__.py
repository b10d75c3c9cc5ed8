"""Many rows at once: lanes, in each of which one row is advanced in lock-step with the others.

Rows of one problem differ in numbers alone: every one of them goes through the same operations on the same sparsity. So
an operation is read once and done for eight rows or more, one in each lane of the processor's vector unit, which is
when what is spent on reading no longer counts. From the row to the processor:

    batch         rows in, points out                  run         which lane works on which row
    attempts      what is tried next for a row         monitor     which lanes have converged or stalled
    starts        where attempts start                 iteration   one iteration of all lanes
    formulas      its formulas (`_newton`'s)           linear      the condensed matrix among them
    shared        derivatives, symbolic analysis       factors     the sparse factorisation
    builder       formulas of columns as programs      program     CasADi's expressions as programs
    operations    what programs consist of             kernels     the loops that run them, compiled when first used
    tangents      how solutions move with the input    triangular  factors that all rows share
"""
