"""What is believed: models that map inputs to a distribution over answers. Arrays only."""
