"""What people see: comparisons, the paper's tables and figures beside ours, plots, and a page to pass on."""
