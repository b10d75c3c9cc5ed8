"""What is known: drawn inputs, labels solved on one machine or many, the store they live in, importers."""
