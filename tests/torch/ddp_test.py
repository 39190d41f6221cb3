"""DistributedDataParallel over clustar: gradients as gloo's, PyTorch's own hooks, and ours with their residuals."""

import unittest

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

import clustar_torch
import ranks


def train(rank, n, prepare=None, steps=30):
    """Losses of a regression on data of the rank's own, and the model's last parameters."""
    torch.manual_seed(3)
    net = torch.nn.Sequential(torch.nn.Linear(20, 300), torch.nn.ReLU(), torch.nn.Linear(300, 300), torch.nn.ReLU(),
                              torch.nn.Linear(300, 1))
    model = DistributedDataParallel(net, bucket_cap_mb=0.1)
    if prepare:
        prepare(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    x = torch.randn(64, 20, generator=torch.Generator().manual_seed(rank))
    y = x[:, :3].sum(1, keepdim=True)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses, [p.detach().clone().numpy() for p in net.parameters()]


class Ddp(unittest.TestCase):
    def agree(self, prepare=None):
        """Losses by rank. All ranks have the same parameters at the end."""
        results = ranks.run(3, lambda rank, n: train(rank, n, prepare))
        for _, parameters in results[1:]:
            for a, b in zip(parameters, results[0][1]):
                self.assertTrue((a == b).all())
        for losses, _ in results:
            self.assertLess(losses[-1], 0.5 * losses[0])
        return [losses for losses, _ in results]

    def test_losses_equal_gloos(self):
        ours = self.agree()
        theirs = [losses for losses, _ in ranks.run(3, train, backend="gloo")]
        self.assertTrue(torch.allclose(torch.tensor(ours), torch.tensor(theirs), rtol=1e-4), (ours, theirs))

    def test_pytorchs_hooks(self):
        self.agree(lambda model: model.register_comm_hook(None, default_hooks.fp16_compress_hook))
        state = lambda: powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=4, start_powerSGD_iter=3,
                                                    min_compression_rate=1)
        self.agree(lambda model: model.register_comm_hook(state(), powerSGD_hook.powerSGD_hook))

    def test_top_k(self):
        self.agree(lambda model: clustar_torch.hooks.register(model, clustar_torch.hooks.TopK(0.05, warmup=2)))

    def test_one_bit(self):
        self.agree(lambda model: clustar_torch.hooks.register(model, clustar_torch.hooks.OneBit(block=64)))

    def test_all_of_top_k_is_what_ddp_does(self):
        plain, whole = self.agree(), self.agree(
            lambda model: clustar_torch.hooks.register(model, clustar_torch.hooks.TopK(1.0)))
        self.assertTrue(torch.allclose(torch.tensor(plain), torch.tensor(whole), rtol=1e-4))

    def test_nothing_is_lost(self):
        """What was sent and what is owed are together what there was, step after step."""
        for codec in (clustar_torch.hooks.TopK(0.1), clustar_torch.hooks.OneBit(block=16)):
            owed, sent, there = torch.zeros(1003), torch.zeros(1003), torch.zeros(1003)
            for step in range(20):
                gradients = torch.randn(1003, generator=torch.Generator().manual_seed(step))
                there += gradients
                owed += gradients
                message = codec.encode(owed)
                codec.add(sent, message)
                self.assertTrue(torch.allclose(sent + owed, there, atol=1e-4))
            self.assertLess(message.numel() * message.element_size(), 1003 * 4 * 0.41)

    def test_what_a_codec_takes(self):
        self.assertIn("allowed", ranks.message_of(lambda: clustar_torch.hooks.TopK(0)))
        self.assertIn("allowed", ranks.message_of(lambda: clustar_torch.hooks.OneBit(12)))
        self.assertIn("allowed", ranks.message_of(lambda: clustar_torch.hooks.OneBit(warmup=-1)))


if __name__ == "__main__":
    unittest.main()
