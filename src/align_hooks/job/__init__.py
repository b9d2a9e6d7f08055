"""Start one process under hooks, all processes of a command, or a command that ends once its arguments are parsed."""
