"""A stand-in for hyper-parallel and for MindSpore's communication, by which MindFormers' PyNative trainer trains in processes of a CPU.

``install`` puts it in place, before ``mindformers.pynative`` is imported. Names and meanings are hyper-parallel's; what is not
here is an empty class of align_hooks' own stand-in.
"""

import importlib.util
import sys


def install():
    """Join the processes of msrun and put everything in place."""
    from align_hooks.ms_side.pynative import hyper_parallel
    from hyper_stand_in import collectives, mesh, operators, sharding, tensors

    collectives.begin()
    collectives.install()
    operators.install()
    named = {name: value for module in (mesh, tensors) for name, value in vars(module).items()}
    taken = "DeviceMesh init_device_mesh Placement Shard StridedShard Replicate Partial Layout DTensor distribute_tensor"
    hyper_parallel.USED.update({name: named[name] for name in [*taken.split(), "_infer_slice_area_by_rank"]})
    taken = "MixedPrecisionPolicy OffloadPolicy CPUOffloadPolicy ShardingPlan shard_module HSDPModule fully_shard"
    hyper_parallel.USED.update({name: getattr(sharding, name) for name in taken.split()})
    hyper_parallel.USED |= {"DTensorBase": tensors.DTensor, "enable_mindspore_backward_compat": sharding.give_backward}
    hyper_parallel.USED |= {"get_platform": sharding.Platform}
    if importlib.util.find_spec(hyper_parallel.NAME) is None:
        sys.meta_path.append(hyper_parallel.StandIn())
