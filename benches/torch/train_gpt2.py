"""Trains a GPT-2 of medium size on sequences of many lengths: python3 train_gpt2.py --allocator cachette."""

import random

import measured


def build(options):
    """The model with random weights."""
    from transformers import AutoModelForCausalLM, GPT2Config

    sizes = {"n_embd": 64, "n_layer": 2, "n_head": 2} if options.tiny else {"n_embd": 1024, "n_layer": 24, "n_head": 16}
    config = GPT2Config(vocab_size=50257, n_positions=1024, **sizes)
    # Attention that is written out has gradients that come out the same each time.
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def main():
    options = measured.arguments(__doc__, steps=90)
    torch = measured.switch(options.allocator, options.device)
    measured.seed(torch, options.seed)
    model = build(options).to(options.device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    lengths = random.Random(options.seed)
    meter = measured.Meter(torch, options)
    for _ in range(options.steps):
        length = 8 * lengths.randint(8, 12 if options.tiny else 128)
        batch = lengths.choice((4, 6, 8))
        with meter.step():
            tokens = torch.randint(0, 50257, (batch, length), device=options.device)
            with torch.autocast(options.device, dtype=torch.bfloat16):
                loss = model(input_ids=tokens, labels=tokens).loss
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            value = loss.item()
        meter.result(value.hex())
    meter.report("train_gpt2")


if __name__ == "__main__":
    main()
