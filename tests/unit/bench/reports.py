"""Reports made to order for the tests of summaries, tables and pages."""

from bench.record import Probe, Report, Run, Side


def run(
    number: int, side: str, tpot_ms: float, *, scenario: str = "S1", read_gb_s: float = 30.0, after_gb_s: float = 0.0
) -> Run:
    return Run(
        round=number,
        scenario=scenario,
        side=side,
        probe=Probe(read_gb_s, 400.0),
        figures={"tpot_ms": tpot_ms, "tok_s": 1000 / tpot_ms},
        limits={"tpot_ms": 10.0, "tok_s": 100.0},
        gaps_ms=[tpot_ms] * 14,
        wall_s=1.0,
        client_cpu_s=0.01,
        server_cpu_s=2.0,
        idle_cpu_s=0.0,
        after=Probe(after_gb_s or read_gb_s, 400.0),
    )


def report(*runs: Run, peers: tuple[str, ...] = ("peer",)) -> Report:
    sides = [Side(name, [name, "<serve>"], 1.0, 100) for name in ("headrace", *peers)]
    return Report("2026-01-01T00:00:00+00:00", "a model", 2, "a processor", 7, sides, list(runs))
