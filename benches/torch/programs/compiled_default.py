"""Trains with torch.compile: python3 compiled_default.py."""

import program


def main(mode="default"):
    torch, options = program.begin()
    network = program.model(torch).to(options.device)
    # Shapes are static here, so that every size of a batch gets its graph.
    compiled = torch.compile(network, mode=mode, dynamic=False)
    program.end(program.train(torch, compiled, options))


if __name__ == "__main__":
    main()
