"""Model families: what a Llama is, on both sides, as data; one file a family.

A family says which built models belong to it, how each framework names and fuses its parameters, which tensors it has and in which
order a forward pass meets them, and what its Hugging Face configuration is (:class:`.family.Family`). :mod:`.registry` lists the
families, and everything else reads that list. A new family is a new file and its line there. Nothing here imports a framework.
"""
