"""The quantities that a run can record, as data (:class:`.kind.Quantity`), one file each; :mod:`.registry` lists them.

Nothing here reads or writes files, or imports a framework. Findings are also about what is not a quantity, such as a learning rate or
a setting (:class:`align_hooks.comparison.finding.Metric`).
"""
