"""Model families, each a file of data: what a Llama is on both sides.

A family (:class:`.family.Family`) says which built models belong to it, how each framework names and fuses its parameters, which
tensors it has in the order of a forward pass, and what its Hugging Face configuration is. :mod:`.registry` lists the families, and
everything else reads that list. A new family is a new file and its line there. Nothing here imports a framework.
"""
