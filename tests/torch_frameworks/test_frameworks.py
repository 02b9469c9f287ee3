"""Goal: Lightning, Accelerate and the Trainer of transformers train over this backend as over Gloo. Method: small
programs that torchrun starts with one name and with the other; their losses have to agree."""

import json

import pytest
import torch

from test_groups import torchrun

COMMON = """
    import json, os, sys
    import torch, torch.distributed as dist

    BACKEND = os.environ["BACKEND"]
    torch.set_num_threads(1)
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 8))
    rows = list(torch.randn(64, 8, generator=torch.Generator().manual_seed(1)))

    def tell(losses):
        assert dist.get_backend() == BACKEND, dist.get_backend()
        # In one piece: ranks share the pipe.
        sys.stdout.write("told: " + json.dumps([dist.get_rank(), losses]) + "\\n")
        sys.stdout.flush()
        dist.destroy_process_group()
        if BACKEND == "gloo":
            # One run in eight that has trained over Gloo ends in "terminate called without an active exception".
            os._exit(0)
"""

LIGHTNING = """
    import lightning
    from lightning.pytorch.strategies import DDPStrategy, FSDPStrategy

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.network, self.losses = network, []

        def training_step(self, batch, number):
            loss = (self.network(batch) - batch).square().mean()
            self.log("mean", loss, sync_dist=True, on_epoch=True)
            self.losses.append(loss.item())
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Model()
    trainer = lightning.Trainer(accelerator="cpu", devices=2, max_epochs=2, logger=False, enable_checkpointing=False,
                                enable_progress_bar=False, enable_model_summary=False,
                                strategy=DDPStrategy(process_group_backend=BACKEND))
    trainer.fit(model, torch.utils.data.DataLoader(rows, batch_size=8))
    tell(model.losses + [trainer.callback_metrics["mean_epoch"].item()])
"""

# Accelerate has a list of names that it takes; it uses a group that is there.
ACCELERATE = """
    import accelerate
    dist.init_process_group(BACKEND)
    accelerator = accelerate.Accelerator(cpu=True)
    assert accelerator.num_processes == 2
    model, optimizer, loader = accelerator.prepare(
        network, torch.optim.SGD(network.parameters(), lr=0.1), torch.utils.data.DataLoader(rows, batch_size=8))
    losses = []
    for _ in range(2):
        for batch in loader:
            optimizer.zero_grad()
            loss = (model(batch) - batch).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            losses += accelerator.gather(loss.detach()).tolist()
    losses.append(accelerator.reduce(loss.detach(), "mean").item())
    assert accelerate.utils.gather_object([accelerator.process_index]) == [0, 1]
    accelerator.wait_for_everyone()
    tell(losses)
"""

TRAINER = """
    import transformers
    dist.init_process_group(BACKEND)

    class Network(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.network = network

        def forward(self, inputs, labels):
            outputs = self.network(inputs)
            return {"loss": (outputs - labels).square().mean(), "logits": outputs}

    arguments = transformers.TrainingArguments(
        output_dir=os.environ["FOLDER"], use_cpu=True, num_train_epochs=2, per_device_train_batch_size=4,
        per_device_eval_batch_size=4, logging_steps=1, learning_rate=0.01, report_to=[], disable_tqdm=True, save_steps=4,
        eval_strategy="epoch", label_names=["labels"])
    data = [{"inputs": row, "labels": row} for row in rows]
    trainer = transformers.Trainer(model=Network(), args=arguments, train_dataset=data, eval_dataset=data)
    assert arguments.world_size == 2
    trainer.train()
    history = trainer.state.log_history
    tell([entry[key] for entry in history for key in ("loss", "eval_loss", "grad_norm") if key in entry])
"""

PROGRAMS = {"lightning": LIGHTNING, "accelerate": ACCELERATE, "trainer": TRAINER}


def losses(folder, name, backend):
    """By rank: what a program has lost."""
    folder.mkdir()
    out = torchrun(folder, COMMON + PROGRAMS[name], BACKEND=backend, FOLDER=str(folder))
    told = dict(json.loads(line.partition(": ")[2]) for line in out.splitlines() if line.startswith("told: "))
    assert sorted(told) == [0, 1], out
    return told


@pytest.mark.parametrize("name", PROGRAMS)
def test_losses_are_those_of_gloo(tmp_path, name):
    ours, gloo = losses(tmp_path / "ours", name, "tributary"), losses(tmp_path / "gloo", name, "gloo")
    for rank in ours:
        assert len(ours[rank]) >= 8
        torch.testing.assert_close(torch.tensor(ours[rank]), torch.tensor(gloo[rank]), rtol=1e-5, atol=1e-7)
