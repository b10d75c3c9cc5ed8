"""Many rows at once, one in each lane of the processor's vector unit.

Rows of one problem differ in numbers alone: every one of them goes through the same operations on the same sparsity.
So an operation is read once and done for eight rows or more, which is when what is spent on reading no longer counts.
`machine` has the few loops that this takes, compiled when first used; `program` turns CasADi's expressions into what
they read; `factors` does the same for the factorisation; `formulas` writes the interior-point method's formulas as such
programs, with a `pen`; `iteration` runs them; `batch` keeps the lanes filled, in the order of `ways`.
"""
