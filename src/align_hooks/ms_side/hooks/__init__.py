"""Hook bodies, a file for each thing that is read or changed. They import mindspore and mindformers freely: each is
imported only after its trigger.
"""
