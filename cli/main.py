"""The `headrace` command: options in, plain values out; every failure is one line and an exit code.

Exit codes: 0 done, 1 failed, 2 the command or its settings are wrong, 130 interrupted before the stack was up.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from cli.exits import exit_codes
from cli.keys import keys
from libs.runtime.logs import setup_logs

app = typer.Typer(
    name="headrace",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
app.add_typer(keys)

ModelsOption = Annotated[
    list[str] | None,
    typer.Option(help="A directory, a .gguf file, a Hugging Face id, or smollm2 (the default); may be repeated."),
]
NamesOption = Annotated[
    list[str] | None,
    typer.Option(help="What the first --model is called, then the next; after a comma further names for it."),
]
KernelsOption = Annotated[
    str, typer.Option(help="auto, native, torch, or a level: avx512bf16, avx512, avx2, portable.")
]
SettingsOption = Annotated[
    list[str] | None, typer.Option("--set", metavar="SERVICE.KEY=VALUE", help="A setting of one service, or of *.")
]
RunDirOption = Annotated[
    Path | None,
    typer.Option("--run-dir", help="Logs, sockets and state of the stack. [default: ~/.local/state/headrace]"),
]


def main() -> None:
    app()


@app.callback()
def logs(context: typer.Context) -> None:
    """Serve a large language model as a pipeline of independent services."""
    setup_logs("info" if context.invoked_subcommand == "up" else "error", "text")


@app.command()
def up(
    model: ModelsOption = None,
    served_model_name: NamesOption = None,
    host: Annotated[str, typer.Option(help="Beyond loopback it needs HR_GATEWAY_API_KEY.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="0 is any free port.")] = 8000,
    dtype: Annotated[str, typer.Option(help="bfloat16, float32, int8, or int8w: integer weights alone.")] = "bfloat16",
    prefill: Annotated[int, typer.Option(min=0, help="Prefill workers.")] = 1,
    decode: Annotated[int, typer.Option(min=1, help="Decode workers.")] = 1,
    tokenizers: Annotated[int, typer.Option(min=1, help="Tokenizers.")] = 1,
    schedulers: Annotated[int, typer.Option(min=1, help="Schedulers: one leads, the others stand by.")] = 1,
    kv_blocks: Annotated[int, typer.Option(min=0, help="KV blocks; 0 takes a share of the free memory.")] = 0,
    host_blocks: Annotated[int, typer.Option(min=0, help="Blocks of a host tier to swap to; 0: none.")] = 0,
    host_tier: Annotated[Path | None, typer.Option(help="A new file for the host tier, instead of memory.")] = None,
    block_tokens: Annotated[int, typer.Option(help="Tokens in a block: 16, 32 or 64.")] = 16,
    max_model_len: Annotated[int, typer.Option(min=0, help="Longest sequence in tokens; 0 is the model's own.")] = 0,
    role: Annotated[str, typer.Option(help="Who computes prompts: auto, hybrid (decode) or disaggregated.")] = "auto",
    kernels: KernelsOption = "auto",
    run_dir: RunDirOption = None,
    settings: SettingsOption = None,
    detach: Annotated[bool, typer.Option("--detach", help="Return when ready; the stack runs on.")] = False,
    api_key: Annotated[str, typer.Option(envvar="HR_GATEWAY_API_KEY", hidden=True)] = "",
) -> None:
    """Start a stack and keep it running until Ctrl-C."""
    from cli.control import chosen_run_dir
    from cli.up import run_up
    from deploy.local.options import UpOptions, parse_overrides

    with exit_codes():
        options = UpOptions(
            run_dir=chosen_run_dir(run_dir).path,
            host=host,
            port=port,
            dtype=dtype,
            prefill=prefill,
            decode=decode,
            tokenizers=tokenizers,
            schedulers=schedulers,
            kv_blocks=kv_blocks,
            host_blocks=host_blocks,
            host_tier=host_tier,
            block_tokens=block_tokens,
            max_model_len=max_model_len,
            role=role,
            kernels=kernels,
            api_key=api_key,
            overrides=parse_overrides(settings or ()),
        )
        raise typer.Exit(run_up(model or ("smollm2",), served_model_name or (), options, detach=detach))


@app.command()
def down(run_dir: RunDirOption = None) -> None:
    """Stop the stack."""
    from cli.control import stop_stack

    with exit_codes():
        sys.stdout.write(stop_stack(run_dir) + "\n")


@app.command()
def chaos(
    fault: Annotated[list[str], typer.Argument(metavar="FAULT", help="kill decode_worker, or freeze scheduler 5s.")],
    run_dir: RunDirOption = None,
) -> None:
    """Kill or freeze a process of your own running stack, to see what becomes of its streams."""
    from cli.control import chosen_run_dir
    from deploy.local.chaos import parse_fault, strike

    with exit_codes():
        sys.stdout.write(strike(chosen_run_dir(run_dir), parse_fault(fault)) + "\n")


@app.command()
def failpoints() -> None:
    """List the places at which HR_<SERVICE>_FAILPOINTS="name=action[:argument][@n],…" can plant a fault."""
    from libs.runtime.failpoints import ACTIONS, POINTS

    width = max(map(len, POINTS))
    lines = [f"{name:{width}}  {meaning}" for name, meaning in POINTS.items()]
    sys.stdout.write("\n".join([*lines, f"actions: {', '.join(ACTIONS)}", ""]))


@app.command()
def status(
    run_dir: RunDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    audit: Annotated[bool, typer.Option(help="Have the scheduler check its blocks, tables and orders.")] = False,
) -> None:
    """Show the services, the KV blocks and the queue of the running stack."""
    from cli.control import stack_status

    with exit_codes():
        sys.stdout.write(stack_status(run_dir, as_json=as_json, audit=audit) + "\n")


@app.command()
def trace(
    name: Annotated[
        str, typer.Argument(metavar="ID", help="A request's id (or its beginning), a trace id, WORKER#STEP, or last.")
    ],
    run_dir: RunDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    perfetto: Annotated[Path | None, typer.Option(metavar="FILE", help="Write a file for ui.perfetto.dev.")] = None,
) -> None:
    """Show where the time of a request went, of a running stack or of the last one."""
    from cli.trace import show_trace

    with exit_codes():
        sys.stdout.write(show_trace(name, run_dir, as_json=as_json, perfetto_path=perfetto))


@app.command()
def explain(
    name: Annotated[str, typer.Argument(metavar="ID", help="As for `trace`.")], run_dir: RunDirOption = None
) -> None:
    """Tell in words why a request took as long as it did."""
    from cli.trace import show_explanation

    with exit_codes():
        sys.stdout.write(show_explanation(name, run_dir))


@app.command()
def replay(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="What scheduler.event_log_path named.")],
) -> None:
    """Decide a run of the scheduler again, from its event log, and compare every decision."""
    from cli.replay import replay_files

    with exit_codes():
        sys.stdout.write(replay_files(files))


@app.command()
def roofline(
    model: Annotated[str, typer.Argument(help="A known name such as llama-3-70b, a config.json, or as for `up`.")],
    device: Annotated[
        str, typer.Argument(help="a100, h100, h200, …; cpu probes this machine; none takes the three figures.")
    ] = "",
    flops: Annotated[float, typer.Option(min=0, help="TFLOP/s of the device.")] = 0,
    bandwidth: Annotated[float, typer.Option(min=0, help="TB/s of its memory.")] = 0,
    memory: Annotated[float, typer.Option(min=0, help="GB of its memory.")] = 0,
    price: Annotated[float, typer.Option(min=0, help="Of one device for an hour, in any currency.")] = 0,
    dtype: Annotated[str, typer.Option(help="Of the weights; --flops for its rate.")] = "bfloat16",
    kv_dtype: Annotated[str, typer.Option(help="Of the KV cache.")] = "bfloat16",
    context: Annotated[int, typer.Option(min=0, help="Tokens of each sequence; 0 is 4096 or the model's own.")] = 0,
    prompt: Annotated[int, typer.Option(min=1, help="Tokens of a prompt that users share.")] = 1000,
    users: Annotated[int, typer.Option(min=1, help="Who share it.")] = 128,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Compute what a model can do on a device at best: memory, sequences, batches, speed and cost."""
    from cli.roofline.command import show_roofline
    from cli.roofline.splits import Load

    with exit_codes():
        text = show_roofline(
            model,
            device,
            tflops=flops,
            tb_s=bandwidth,
            memory_gb=memory,
            dtype=dtype,
            kv_dtype=kv_dtype,
            load=Load(context, prompt, users, price),
            as_json=as_json,
        )
        sys.stdout.write(text)


@app.command()
def profile(
    seconds: Annotated[float, typer.Option(min=0.1, max=600.0, help="How long to look.")] = 5.0,
    run_dir: RunDirOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    flame: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write a flame graph: .svg, or folded lines for other tools.")
    ] = None,
) -> None:
    """Show where the time of the workers' steps goes, from now on: kernels, Python, link, idle."""
    from cli.profile import show_profile

    with exit_codes():
        sys.stdout.write(show_profile(run_dir, seconds, as_json=as_json, flame_path=flame))


@app.command()
def bench(
    model: Annotated[str, typer.Option(help="As for `up`.")] = "smollm2",
    scenario: Annotated[str, typer.Option(help="S1,S3,… [default: all]", show_default=False)] = "",
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of all scenarios.")] = 3,
    base_url: Annotated[
        str, typer.Option(help="A stack that runs already, http://…/v1. [default: starts its own]", show_default=False)
    ] = "",
    dtype: Annotated[str, typer.Option(help="As for `up`, of the stack that is started.")] = "bfloat16",
    peers: Annotated[
        str,
        typer.Option(help="To take turns with: llama.cpp,llama.cpp-q8_0,vllm,transformers, or headrace-<dtype>."),
    ] = "",
    json_path: Annotated[Path | None, typer.Option("--json", help="Write every run to this file.")] = None,
    html_path: Annotated[Path | None, typer.Option("--html", help="Write a page with plots to this file.")] = None,
    compare: Annotated[
        tuple[Path, Path] | None, typer.Option(metavar="A B", help="Compare two files written by --json; runs nothing.")
    ] = None,
    api_key: Annotated[str, typer.Option(envvar="HR_GATEWAY_API_KEY", hidden=True)] = "",
) -> None:
    """Measure a stack, alone or beside its peers."""
    from bench.command import BenchOptions
    from cli.bench import compare_reports, measure, model_dir, scenarios
    from cli.models import cache_root

    with exit_codes():
        if compare:
            sys.stdout.write(compare_reports(*compare))
            return
        options = BenchOptions(
            model_dir=model_dir(model),
            scenarios=scenarios(scenario),
            rounds=rounds,
            log_dir=cache_root() / "bench",
            base_url=base_url,
            api_key=api_key,
            dtype=dtype,
            peers=tuple(name.strip() for name in peers.split(",") if name.strip()),
            json_path=json_path,
            html_path=html_path,
        )
        sys.stdout.write(measure(options))
