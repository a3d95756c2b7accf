"""Trains with PyTorch Lightning's Trainer: python3 lightning_trainer.py."""

import program


def main():
    torch, options = program.begin()
    try:
        import lightning.pytorch as pl
    except ImportError:
        import pytorch_lightning as pl

    class Module(pl.LightningModule):
        """The shared model and its losses."""

        def __init__(self):
            super().__init__()
            self.network, self.losses = program.model(torch), []

        def training_step(self, batch, _):
            inputs, labels = batch
            loss = torch.nn.functional.cross_entropy(self.network(inputs), labels)
            self.losses.append(loss.detach())
            return loss

        def configure_optimizers(self):
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    pl.seed_everything(options.seed)
    module = Module()
    batches = [program.batch(torch, step, "cpu") for step in range(options.steps)]
    data = torch.utils.data.DataLoader(batches, batch_size=None, pin_memory=options.device == "cuda")
    trainer = pl.Trainer(accelerator="gpu" if options.device == "cuda" else "cpu", devices=1, max_epochs=2,
                         deterministic="warn", logger=False, enable_checkpointing=False, enable_progress_bar=False,
                         enable_model_summary=False)
    trainer.fit(module, data)
    program.end(loss.item() for loss in module.losses)


if __name__ == "__main__":
    main()
