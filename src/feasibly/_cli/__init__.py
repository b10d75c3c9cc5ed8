"""What the commands are made of. `feasibly.cli` puts them together; nothing else imports this."""
