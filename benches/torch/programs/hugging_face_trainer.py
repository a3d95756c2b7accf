"""Trains a tiny GPT-2 with random weights with Hugging Face's Trainer: python3 hugging_face_trainer.py."""

import tempfile

import program


def main():
    torch, options = program.begin()
    from transformers import AutoModelForCausalLM, GPT2Config, Trainer, TrainerCallback, TrainingArguments

    class Losses(TrainerCallback):
        """Keeps the loss of each step."""

        found = []

        def on_log(self, arguments, state, control, logs=None, **_):
            if "loss" in logs:
                self.found.append(float(logs["loss"]))

    config = GPT2Config(vocab_size=512, n_positions=64, n_embd=64, n_layer=2, n_head=2)
    # Attention that is written out has gradients that come out the same each time.
    network = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
    tokens = torch.randint(0, 512, (8 * options.steps, 64), generator=torch.Generator().manual_seed(1))
    data = [{"input_ids": row, "labels": row} for row in tokens]
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(output_dir=folder, per_device_train_batch_size=8, max_steps=options.steps,
                                      logging_steps=1, save_strategy="no", report_to=[], seed=options.seed,
                                      disable_tqdm=True, dataloader_num_workers=2, use_cpu=options.device == "cpu")
        Trainer(model=network, args=arguments, train_dataset=data, callbacks=[Losses()]).train()
    program.end([*Losses.found, *checksums(network)])


def checksums(network):
    """The sum of each weight at the end: logged losses are rounded, and these are not."""
    return [weights.detach().double().sum().item() for weights in network.parameters()]


if __name__ == "__main__":
    main()
