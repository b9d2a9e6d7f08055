"""Starting what trains: a process under hooks, all processes of a command, a command that stops at its arguments."""
