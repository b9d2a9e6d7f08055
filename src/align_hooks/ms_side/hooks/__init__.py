"""Hook handlers, one file a subject. They import mindspore and mindformers freely: each is imported only after its trigger."""
