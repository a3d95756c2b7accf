"""Generates text with a Llama-like model whose cache grows token by token: python3 generate_llama.py."""

import random

import measured


def build(options):
    """The model with random weights."""
    from transformers import AutoModelForCausalLM, LlamaConfig

    sizes = ({"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
              "num_key_value_heads": 2} if options.tiny else
             {"hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 16, "num_attention_heads": 16,
              "num_key_value_heads": 8})
    config = LlamaConfig(vocab_size=32000, max_position_embeddings=4096, **sizes)
    # Attention that is written out comes out the same each time; a fused one does not in 16 bits.
    return AutoModelForCausalLM.from_config(config, attn_implementation="eager")


def generate(torch, model, tokens, count, meter):
    """Yields the tokens that the model finds likeliest, one a row at a time."""
    cache = None
    for _ in range(count):
        with meter.step():
            output = model(input_ids=tokens, past_key_values=cache, use_cache=True)
            cache = output.past_key_values
            tokens = output.logits[:, -1].argmax(dim=-1, keepdim=True)
            found = tokens.flatten().tolist()
        yield found


def main():
    options = measured.arguments(__doc__, steps=700)
    torch = measured.switch(options.allocator, options.device)
    # Sums stay in 32 bits, so that a product does not depend on how it was cut into parts.
    torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = False
    measured.seed(torch, options.seed)
    kind = torch.bfloat16 if options.device == "cuda" else torch.float32
    model = build(options).to(device=options.device, dtype=kind).eval()
    requests = random.Random(options.seed)
    meter = measured.Meter(torch, options)
    left = options.steps
    while left > 0:
        rows, length = requests.randint(1, 24), requests.randint(16, 32 if options.tiny else 1200)
        count = min(left, requests.randint(20, 90))
        left -= count
        prompt = torch.randint(0, 32000, (rows, length), device=options.device)
        with torch.inference_mode():
            for found in generate(torch, model, prompt, count, meter):
                meter.result(found)
    meter.report("generate_llama")


if __name__ == "__main__":
    main()
