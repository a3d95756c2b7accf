"""A DataLoader with workers copies pinned batches to the GPU while it trains: python3 loader.py."""

import program


class Examples:
    """Examples that workers make by number."""

    def __init__(self, torch):
        generator = torch.Generator().manual_seed(1)
        self.inputs = torch.randn(12 * 96, 64, generator=generator)

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, at):
        return self.inputs[at], self.inputs[at, :8].argmax()


def main():
    torch, options = program.begin()
    network = program.model(torch).to(options.device)
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    data = torch.utils.data.DataLoader(Examples(torch), batch_size=96, shuffle=True, num_workers=2,
                                       pin_memory=options.device == "cuda",
                                       generator=torch.Generator().manual_seed(options.seed))
    losses = []
    for _ in range(2):
        for batch in data:
            inputs, labels = (part.to(options.device, non_blocking=True) for part in batch)
            loss = torch.nn.functional.cross_entropy(network(inputs), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    program.end(losses)


if __name__ == "__main__":
    main()
