//! Errors in a problem file or on the command line name their place.

use super::*;

#[test]
fn a_problem_without_a_plan_names_the_shortage() {
    for (from, to, said) in [
        (
            "slo = \"100ms\"",
            "slo = \"7ms\"",
            "workloads.light.slo: 7 ms cannot be met, two batches of one row on the largest share take 8 ms; expected at least 8 ms",
        ),
        (
            "memory = \"1GiB\"",
            "memory = \"1MiB\"",
            "workloads.light.model: needs 2 MiB of memory, the largest device has 1 MiB; expected a device with at least 2 MiB",
        ),
        (
            "rate = 100",
            "rate = 100\nreplicas_min = 3",
            "workloads.light.replicas_min: must be in 3 fault domains, its devices are in 2; expected 3 fault domains, or fewer replicas",
        ),
    ] {
        let bench = Bench::new(&SMALL.replacen(from, to, 1));
        let text = bench.answer(&[]);
        assert!(text.contains(&format!("tessera: no plan: {said}\n")), "{to}: {text}");
        assert_eq!(code(&bench.arguments(&[])), format!("{:?}", ExitCode::FAILURE));
    }
}

#[test]
fn errors_name_the_line_and_the_key() {
    for (from, to, said) in [
        ("[devices.cpu]", "[device.cpu]", "small.toml:4: device: unknown key, did you mean `devices`?"),
        (
            "rate = 100",
            "rate = 100\nrate_limiter = {}",
            "small.toml:11: workloads.light.rate_limiter: the simulator and the planner have no rate limiter: remove the key; to measure it,",
        ),
        ("memory", "memroy", "small.toml:6: devices.cpu.memroy: unknown key, did you mean `memory`?"),
        (
            "memory = \"1GiB\"",
            "",
            "small.toml:4: devices.cpu.memory: expected a value: this key has no default",
        ),
        (
            "1GiB",
            "1GB",
            "small.toml:6: devices.cpu.memory: expected a size such as `16MiB`, a whole number with B, KiB, MiB or GiB, got `1GB`",
        ),
        ("count = 2", "count = 0", "small.toml:5: devices.cpu.count: expected 1 to 16384, got 0"),
        ("count = 2", "count = -2", "small.toml:5: devices.cpu.count: "),
        (
            "count = 2",
            "units = 8",
            "small.toml:1: profiles.light.cpu: expected 8 units like the device, got 4",
        ),
        (
            "count = 2",
            "sizes = [1, 3, 2]",
            "small.toml:5: devices.cpu.sizes: expected ascending numbers from 1 to 4, got [1, 3, 2]",
        ),
        (
            "count = 2",
            "sizes = [5]",
            "small.toml:5: devices.cpu.sizes: expected ascending numbers from 1 to 4, got [5]",
        ),
        (
            "count = 2",
            "sizes = []",
            "small.toml:5: devices.cpu.sizes: expected ascending numbers from 1 to 4, got []",
        ),
        ("count = 2", "gpulets_max = 0", "small.toml:5: devices.cpu.gpulets_max: expected at least 1, got 0"),
        ("count = 2", "cost = -1", "small.toml:5: devices.cpu.cost: expected 0 to 1000000000000, got -1"),
        ("count = 2", "kind = \"gpu\"", "small.toml:5: devices.cpu.kind: no profile of a device `gpu`"),
        (
            "100ms",
            "100",
            "small.toml:9: workloads.light.slo: expected a duration such as `50ms`, a number with ns, us, ms, s, m, h or d, got `100`",
        ),
        ("100ms", "0ms", "small.toml:9: workloads.light.slo: expected more than 0 and at most 1h, got 0s"),
        ("100ms", "2h", "small.toml:9: workloads.light.slo: expected more than 0 and at most 1h, got 2h"),
        (
            "rate = 100\n",
            "rate = -1\n",
            "small.toml:10: workloads.light.rate: expected 0 to 1000000000000 a second, got -1",
        ),
        (
            "rate = 100\n",
            "rate = nan\n",
            "small.toml:10: workloads.light.rate: expected 0 to 1000000000000 a second, got NaN",
        ),
        ("rate = 100\n", "", "small.toml:8: workloads.light.rate: expected a value: this key has no default"),
        (
            "rate = 100\n",
            "rate = 1\nheadroom = 0.5\n",
            "small.toml:11: workloads.light.headroom: expected 1 to 1000, got 0.5",
        ),
        (
            "rate = 100\n",
            "rate = 1\nreplicas_min = 65\n",
            "small.toml:11: workloads.light.replicas_min: expected at most 64, got 65",
        ),
        (
            "rate = 100\n",
            "rate = 1\nbatch_max = 0\n",
            "small.toml:11: workloads.light.batch_max: expected at least 1, got 0",
        ),
        (
            "rate = 100\n",
            "rate = 1\nnot_with = \"a\"\n",
            "small.toml:11: workloads.light.not_with: expected a list, got `\"a\"`",
        ),
        (
            "\"heavy\"",
            "\"haevy\"",
            "small.toml:13: workloads.slow.model: no profile of `haevy`, did you mean `heavy`?",
        ),
        (
            "\"heavy\"",
            "\"x\"",
            "small.toml:13: workloads.slow.model: no profile of `x`: expected one of heavy, light, or run `tessera profile`",
        ),
        (
            "[workloads.light]",
            "[workloads.\"\"]",
            "small.toml:8: workloads.: expected a name of 1 to 128 letters without control characters",
        ),
        (
            "\"none\"",
            "\"igniterr\"",
            "small.toml:2: interference: unknown model `igniterr`, did you mean `igniter`?",
        ),
        (
            "\"none\"",
            "\"psychic\"",
            "small.toml:2: interference: unknown model `psychic`, expected one of none, gpulet, contention, igniter",
        ),
        (
            "\"none\"",
            "3",
            "small.toml:2: interference: expected a word like \"none\", or a table with `model` and its figures, got `3`",
        ),
        (
            "\"none\"",
            "{ model = \"none\", coefficients = [1] }",
            "small.toml:2: interference.coefficients: model `none` has no use for it, remove it",
        ),
        (
            "\"none\"",
            "{ model = \"gpulet\", coefficients = [1, 2] }",
            "small.toml:2: interference.coefficients: model `gpulet` needs 5 numbers of at most 1000000000000, got [1.0, 2.0]",
        ),
        (
            "\"none\"",
            "{ model = \"gpulet\", coefficients = [1, 2, 3, 4, inf] }",
            "small.toml:2: interference.coefficients: model `gpulet` needs 5 numbers of at most 1000000000000, got [1.0, 2.0, 3.0, 4.0, inf]",
        ),
        (
            "\"none\"",
            "{ model = \"gpulet\", coefficients = [1, 0, 0, 0, 0] }",
            "small.toml:1: profiles.light.cpu: interference model `gpulet` needs utilisation lines (cache and bandwidth by batch)",
        ),
        (
            "\"none\"",
            "\"contention\"",
            "small.toml:2: interference.power: model `contention` describes one device type: expected one table like [interference.power.v100], got 0",
        ),
        (
            "\"none\"",
            "{ model = \"igniter\", power.cpu.cap_w = 3 }",
            "small.toml:2: interference.power.cpu.idle_w: expected a value: this key has no default",
        ),
        (
            "\"none\"",
            "{ model = \"igniter\", power.cpu = { cap_w = 3, idle_w = 1, clock_mhz = 0, clock_mhz_per_w = -1, launch_us_per_runner = 1, launch_us = 1 } }",
            "small.toml:2: interference.power.cpu.clock_mhz: expected megahertz above 0, got 0",
        ),
        (
            "interference = \"none\"",
            "quantile = \"p98\"",
            "small.toml:2: quantile: expected one of `p50`, `p95`, `p99`, got `p98`",
        ),
        (
            "profiles = \"profiles/*.jsonl\"",
            "",
            "small.toml:1: profiles: expected a value: this key has no default",
        ),
        (
            "\"profiles/*.jsonl\"",
            "7",
            "small.toml:1: profiles: expected a path like \"profiles/v100.jsonl\", or a list of paths, got `7`",
        ),
        (
            "\"profiles/*.jsonl\"",
            "[]",
            "small.toml:1: profiles: expected at least one profile, run `tessera profile`",
        ),
        (
            "profiles/*.jsonl",
            "profiles/*.csv",
            "small.toml:1: profiles: `profiles/*.csv`: no file of that name",
        ),
        (
            "profiles/*.jsonl",
            "*/cpu.jsonl",
            "small.toml:1: profiles: `*/cpu.jsonl`: expected at most one `*`, in the last part of the path",
        ),
        (
            "profiles/*.jsonl",
            "profiles/missing.jsonl",
            "small.toml:1: profiles: cannot read `profiles/missing.jsonl`: No such file or directory (os error 2)",
        ),
        (
            "\"profiles/*.jsonl\"",
            "[\"profiles/cpu.jsonl\", \"profiles/*.jsonl\"]",
            "small.toml:1: profiles.light.cpu: expected one profile of a model on a device type, got two",
        ),
        ("rate = 100\n", "rate = \n", "small.toml:10: "),
    ] {
        assert!(SMALL.contains(from), "{from}");
        let mistake = Bench::new(&SMALL.replacen(from, to, 1)).mistake(&[]);
        assert!(mistake.starts_with(said), "{to}:\n{mistake}\n{said}");
    }
}

#[test]
fn invalid_files_and_flags_are_wrong_usage() {
    let bench = Bench::new(SMALL);
    assert!(
        bench
            .mistake(&["--devices", "gpu=1"])
            .starts_with("--devices: no section [devices.gpu]: expected one of cpu")
    );
    let two = Bench::new(&format!("{SMALL}\n[devices.more]\nkind = \"cpu\"\nmemory = \"1GiB\"\n"));
    let said = "--devices: the file has 2 sections of devices: expected NAME=3 with one of cpu, more";
    assert_eq!(two.mistake(&["--devices", "3"]), said);
    std::fs::write(bench.file("profiles/cpu.jsonl"), "{\"cell\":{}}").unwrap();
    assert!(
        bench.mistake(&[]).starts_with("profiles/cpu.jsonl:1: line: expected a JSON object"),
        "{}",
        bench.mistake(&[])
    );
    let missing = arguments(&bench.file("missing.toml"), &[]);
    assert_eq!(code(&missing), format!("{:?}", ExitCode::from(2)));
    for flags in [
        &["--policy", "tesera"][..],
        &["--compare", "--policy", "igniter"],
        &["--devices", "0"],
        &["--devices", "v100="],
        &["--devices", "16385"],
        &["--devcies", "1"],
    ] {
        let words = [&["tessera", "plan", "p.toml"], flags].concat();
        assert!(Cli::try_parse_from(words).is_err(), "{flags:?}");
    }
}
