"""`scripts/bench/run NAME`: a measure of this machine."""

from cyclopts import App

from dragonrt.cli import run, set_up_logging

BENCHES = {
    "aggregation": "Synchronous, leaderless and in one process; the parts of a first token.",
    "decode": "One side's time of a forward, beside transformers' and llama.cpp's.",
    "oracle": "Whether every way of aggregating, at any latency, gives the synchronous text.",
    "isolation": "Right answers over isolated documents: a side alone, one prompt, the mixture.",
    "retrieval": "What is found by meaning, by words and by both.",
    "engine": "Tokens/s of many answers that share forwards, over one at a time.",
    "serving": "Waits and goodput over HTTP of several clients, with a cloud and without.",
    "gpu": "The backend of transformers on a GPU: exactness, times and a whole pair.",
    "capacity": "What one cloud gives to many devices, by engine, beside plain vLLM.",
    "texts": "Make the evaluation texts that docs/results are of from the public files.",
    "results": "Measure all of docs/results, and compare it with what is kept there.",
}
"""Each is the function of its name in the module of its name."""

app = App(
    name="scripts/bench/run",
    help="Measure this machine: a table, then one JSON object, also in results/bench/.",
)
for _name, _help in BENCHES.items():
    app.command(f"scripts.bench.{_name}:{_name}", name=_name, help=_help)


def main() -> None:
    """Run the command line."""
    set_up_logging()
    run(app)


if __name__ == "__main__":
    main()
