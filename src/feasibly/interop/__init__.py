"""Networks of other tools in, answers back into their tables. Neither tool is imported unless asked for."""
