"""Hook bodies, one file for each thing that is seen or changed. They import mindspore and mindformers freely: each is
imported only after its trigger.
"""
