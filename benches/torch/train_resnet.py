"""Trains a ResNet-50 on images of many sizes: python3 train_resnet.py --allocator expandable."""

import random

import measured


def main():
    options = measured.arguments(__doc__, steps=130)
    torch = measured.switch(options.allocator, options.device)
    import torchvision

    measured.seed(torch, options.seed)
    model = torchvision.models.resnet50(weights=None).to(options.device).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    sizes = random.Random(options.seed)
    meter = measured.Meter(torch, options)
    for _ in range(options.steps):
        side = 32 * sizes.randint(2, 3 if options.tiny else 11)
        batch = 2 if options.tiny else sizes.choice((32, 48, 64))
        with meter.step():
            images = torch.randn(batch, 3, side, side, device=options.device)
            labels = torch.randint(0, 1000, (batch,), device=options.device)
            with torch.autocast(options.device, dtype=torch.bfloat16):
                loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            optimizer.step()
            value = loss.item()
        meter.result(value.hex())
    meter.report("train_resnet")


if __name__ == "__main__":
    main()
