"""A training is the same bit for bit with every allocator."""

import gpu

pytestmark = gpu.MARKS

PROGRAM = """
import hashlib, json, torch
torch.use_deterministic_algorithms(True)
torch.backends.cudnn.benchmark = False
torch.manual_seed(0)
model = torch.nn.Sequential(
    torch.nn.Conv2d(3, 32, 3, padding=1), torch.nn.BatchNorm2d(32), torch.nn.ReLU(),
    torch.nn.Conv2d(32, 64, 3, stride=2), torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(1), torch.nn.Flatten(),
    torch.nn.Linear(64, 256), torch.nn.Dropout(0.1), torch.nn.Linear(256, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
losses = []
for step in range(40):
    side = (32, 48, 40, 64)[step % 4]
    images = torch.randn(16 + step % 5, 3, side, side, device="cuda")
    labels = torch.randint(0, 10, (len(images),), device="cuda")
    loss = torch.nn.functional.cross_entropy(model(images), labels)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    losses.append(loss.item().hex())
weights = hashlib.sha256()
for parameter in model.parameters():
    weights.update(parameter.detach().cpu().numpy().tobytes())
print(json.dumps([losses, weights.hexdigest()]))
"""


def test_losses_and_weights_are_the_same_bit_for_bit() -> None:
    variables = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    native = gpu.run_json(PROGRAM, None, **variables)
    for config in ("", "expandable_segments:True", "expandable_segments:True,elastic_setting:compact"):
        assert gpu.run_json(PROGRAM, config, **variables) == native, config


if __name__ == "__main__":
    gpu.main(globals())
