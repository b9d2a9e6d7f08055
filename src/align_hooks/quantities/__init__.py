"""What a run can record: batches, norms, gradients, weights and the rest, as data; one file a quantity.

A quantity says which variable asks for it, whether it is of a step or of a state, which files hold it, of what it is taken, and what it
takes of disk and memory (:class:`.kind.Quantity`). :mod:`.registry` lists them, and everything else reads that list. A new quantity is a
new file and its line there. Nothing here reads or writes a file, and nothing imports a framework.

These are the quantities that are recorded. What a finding is of (:class:`align_hooks.comparison.finding.Metric`) is wider:
a loss, a learning rate, a setting.
"""
