"""`knoi info`: what a model file holds."""

from knoi.cli.files import read_model_file
from knoi.cli.options import AsJson, Debug, Model
from knoi.cli.output import examples, facts_table, print_json, results

EXAMPLES = examples(
    "knoi info model.knoi", "knoi info model.knoi --json | jq .in_sample.correlations"
)


def info(model: Model, as_json: AsJson = False, debug: Debug = False) -> None:
    """Show what a model file holds: method, parameters, shapes, correlations."""
    from knoi.estimators import TwoViewPipeline, from_model_file
    from knoi.estimators.plotting import describe_model, model_facts

    file = read_model_file(model, usage="knoi info MODEL")
    fitted, header, size = from_model_file(file), file.header, model.stat().st_size
    steps = []
    if isinstance(fitted, TwoViewPipeline):
        steps = [("pipeline X", fitted.x_), ("pipeline Y", fitted.y_)]
        fitted, inner = fitted.estimator_, header["estimator"]
        header = {**header, "params": inner["params"], "facts": inner["facts"]}
    if as_json:
        print_json(
            {
                "file": str(model),
                "bytes": size,
                "knoi_version": header["knoi_version"],
                "format": header["format"],
                **model_facts(fitted),
                "parameters": header["params"],
                **header["facts"],
            }
        )
        return
    lines = [("file", f"{model} ({size:,} bytes)")]
    lines.append(("written by", f"knoi {header['knoi_version']}, format {header['format']}"))
    lines += [(label, " ".join(repr(step).split())) for label, step in steps]
    lines.append(("method", type(fitted).__name__))
    params = fitted.get_params(deep=False).items()
    lines += [("parameters" if i == 0 else "", f"{k}={v!r}") for i, (k, v) in enumerate(params)]
    lines += describe_model(fitted)
    lines.append(("weights", str(fitted.projection_.x.weights.dtype)))
    results().print(facts_table(lines))
