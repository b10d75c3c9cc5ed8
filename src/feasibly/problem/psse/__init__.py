"""PSS/E RAW files, revisions 29 to 35: sections and records, the columns of every revision, and elements of them."""
