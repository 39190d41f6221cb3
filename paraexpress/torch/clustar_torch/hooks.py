"""Communication hooks for DistributedDataParallel that send less, with residuals: what a step does not send is added to
the next step's gradients, so nothing is lost, only late (error feedback).

    model = DistributedDataParallel(net)
    clustar_torch.hooks.register(model, clustar_torch.hooks.TopK(0.01))

They work with any backend that gathers. Gradients are averaged, as by DDP itself.
"""

import torch
import torch.distributed as dist

__all__ = ["OneBit", "TopK", "register"]


class _Codec:
    """Residuals of a model's buckets. `warmup` steps are sent whole: DDP makes other buckets after the first one."""

    def __init__(self, warmup=1, group=None):
        if warmup < 0:
            raise ValueError(f"warmup {warmup}; allowed: 0 steps and more")
        self.warmup = warmup
        self.group = group
        self.steps = 0
        self._residuals = {}  # by bucket: the parameters that it was made of, and what they are still owed

    def residual(self, bucket):
        """What this rank has not sent of a bucket: a tensor as long as the bucket's gradients. DDP makes other buckets
        after its first step; parameters that came into another bucket start with nothing owed."""
        gradients = bucket.buffer()
        parameters = [id(parameter) for parameter in bucket.parameters()]
        known, owed = self._residuals.get(bucket.index(), (None, None))
        if known != parameters or owed.numel() != gradients.numel():
            owed = torch.zeros_like(gradients)
            self._residuals[bucket.index()] = (parameters, owed)
        return owed

    def __call__(self, bucket):
        group = self.group or dist.group.WORLD
        gradients = bucket.buffer()
        sends_all = self.steps < self.warmup
        self.steps += bucket.is_last()
        if sends_all:
            gradients.div_(dist.get_world_size(group))
            return dist.all_reduce(gradients, group=group, async_op=True).get_future().then(lambda done: done.value()[0])
        owed = self.residual(bucket)
        owed.add_(gradients)
        message = self.encode(owed)  # takes from `owed` what it says
        messages = [torch.empty_like(message) for _ in range(dist.get_world_size(group))]
        work = dist.all_gather(messages, message, group=group, async_op=True)

        def decode(done):
            done.value()  # raises what failed
            gradients.zero_()
            for one in messages:
                self.add(gradients, one)
            return gradients.div_(len(messages))

        return work.get_future().then(decode)


class TopK(_Codec):
    """The largest of the owed gradients: a share of `ratio` per bucket, at least one. Of each it sends the value (float32)
    and the index (int32): 8 bytes, so 4 * ratio of what float32 gradients need go to each other rank."""

    def __init__(self, ratio=0.01, warmup=1, group=None):
        super().__init__(warmup, group)
        if not 0 < ratio <= 1:
            raise ValueError(f"ratio {ratio}; allowed: above 0, to 1")
        self.ratio = ratio

    def encode(self, owed):
        count = max(1, int(owed.numel() * self.ratio))
        indices = torch.topk(owed.abs(), count, sorted=False).indices
        values = owed[indices].float()
        owed[indices] -= values.to(owed.dtype)
        return torch.cat([values.view(torch.int32), indices.int()])

    def add(self, gradients, message):
        values, indices = message.chunk(2)
        gradients.index_add_(0, indices, values.view(torch.float32).to(gradients.dtype))


class OneBit(_Codec):
    """The sign of every owed gradient, and of each block the mean of their magnitudes (float32), which a sign stands for:
    1 + 32 / `block` bits an element go to each other rank (EF-SignSGD, Karimireddy et al. 2019)."""

    def __init__(self, block=1024, warmup=1, group=None):
        super().__init__(warmup, group)
        if block < 8 or block % 8:
            raise ValueError(f"block {block}; allowed: a multiple of 8 elements")
        self.block = block

    def _blocks(self, count):
        return (count + self.block - 1) // self.block

    def encode(self, owed):
        blocks = self._blocks(owed.numel())
        padded = torch.zeros(blocks * self.block)
        padded[:owed.numel()] = owed
        sizes = torch.full((blocks,), float(self.block))
        sizes[-1] = owed.numel() - (blocks - 1) * self.block
        scales = padded.view(blocks, self.block).abs().sum(1) / sizes
        positive = (padded >= 0).view(-1, 8).to(torch.uint8)
        bits = sum(positive[:, i] << i for i in range(8))
        message = torch.cat([scales.view(torch.uint8), bits])
        owed.sub_(self._signs(message, owed.numel()).to(owed.dtype))
        return message

    def _signs(self, message, count):
        blocks = self._blocks(count)
        scales, bits = message[: 4 * blocks].clone().view(torch.float32), message[4 * blocks:]
        signs = torch.stack([(bits >> i) & 1 for i in range(8)], 1).to(torch.float32).mul_(2).sub_(1)
        return (signs.view(blocks, self.block) * scales[:, None]).view(-1)[:count]

    def add(self, gradients, message):
        gradients.add_(self._signs(message, gradients.numel()).to(gradients.dtype))


def register(model, codec):
    """Sends the model's gradients by the codec from now on; call it once, before the first step."""
    model.register_comm_hook(codec, lambda state, bucket: state(bucket))
