//! Builds the workload, the stages and the client's settings from the flags.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use loadtest::{Credentials, Drive, Endpoint, Payloads, Samples, Settings, Tensors};
use models::TimeSpan;
use node::files::read_text;
use workload::{Extent, Stages, Workload};

use super::arguments::{ClientArgs, Encoding, LoadArgs, Process};
use crate::simulate::reading;

/// Default duration and warm-up of a run with `--model`.
const ONE_MODEL: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(1));
/// Largest file of recorded requests.
const SAMPLES_BYTES: u64 = 1 << 30;

/// Builds the workload from the flags.
pub fn workload(arguments: &LoadArgs) -> anyhow::Result<Workload> {
    anyhow::ensure!(
        arguments.duration.is_none_or(|duration| duration.nanos() > 0),
        "--duration: expected more than 0s"
    );
    let mut workload = match (&arguments.workload, &arguments.model) {
        (Some(path), _) => reading::read(path)?.workload,
        (None, Some(model)) => one_model(arguments, model)?,
        (None, None) => anyhow::bail!("expected a workload file, or --model"),
    };
    if let Some(seed) = arguments.seed {
        workload = workload.with_seed(seed);
    }
    if let Some(duration) = arguments.duration {
        workload.extent = Extent::Time(duration.nanos().min(workload::DURATION_MAX));
    }
    if let Some(warmup) = arguments.warmup {
        workload.warmup = warmup.nanos();
    }
    let total: u64 = arguments.stages.iter().map(|stage| stage.time).fold(0, u64::saturating_add);
    let time = match workload.extent {
        _ if total > 0 => total,
        Extent::Time(time) => time,
        Extent::Requests(_) => workload::DURATION_MAX,
    };
    anyhow::ensure!(
        workload.warmup < time,
        "--warmup: {} leaves nothing to measure: the run takes {}",
        TimeSpan(Duration::from_nanos(workload.warmup)),
        TimeSpan(Duration::from_nanos(time))
    );
    reading::adapt(workload, arguments.rate_scale, None)
}

fn one_model(arguments: &LoadArgs, model: &str) -> anyhow::Result<Workload> {
    anyhow::ensure!(
        arguments.rate > 0.0 && arguments.rate.is_finite(),
        "--rate: expected more than 0 requests per second, got {}",
        arguments.rate
    );
    let (duration, warmup) = ONE_MODEL;
    let duration = arguments.duration.map_or(duration, |duration| duration.0);
    let process = match arguments.arrivals {
        Process::Poisson => "poisson",
        Process::Uniform => "uniform",
    };
    let name = toml::Value::String(model.to_owned());
    let mut text = format!("name = {name}\n");
    let _ = writeln!(text, "duration = \"{}\"", TimeSpan(duration));
    let _ = writeln!(text, "warmup = \"{}\"", TimeSpan(warmup.min(duration / 10)));
    let _ = writeln!(text, "[models.{name}]\nslo = \"{}\"", arguments.slo);
    let _ = writeln!(text, "rate = {:?}\nrows = {}", arguments.rate, arguments.rows);
    let _ = writeln!(text, "arrivals = {{ process = \"{process}\" }}");
    let mut files = |name: &str| Err(format!("no file {name}"));
    Workload::parse(&text, &mut files).map_err(|error| anyhow::anyhow!("--model: {}", error.problem))
}

/// Decides from the flags how requests are sent: in stages or in a closed loop.
pub fn drive(arguments: &LoadArgs, workload: &Workload) -> anyhow::Result<Drive> {
    let time = match workload.extent {
        Extent::Time(time) => time,
        Extent::Requests(_) => workload::DURATION_MAX,
    };
    if let Some(concurrency) = arguments.concurrency {
        return Ok(Drive::Closed { concurrency, time });
    }
    let stages = match arguments.stages.as_slice() {
        [] => Stages::constant(time),
        stages => Stages::new(stages.to_vec()),
    };
    Ok(Drive::Open(stages?))
}

/// Builds the client's settings from the flags.
pub fn settings(arguments: &ClientArgs, endpoint: &Endpoint) -> anyhow::Result<Settings> {
    anyhow::ensure!(
        arguments.tolerance >= 0.0,
        "--tolerance: expected 0 or more, got {}",
        arguments.tolerance
    );
    anyhow::ensure!(!arguments.timeout.0.is_zero(), "--timeout: expected more than 0s");
    Ok(Settings {
        endpoint: endpoint.clone(),
        credentials: Credentials {
            authorization: arguments.credentials.authorization()?,
            tls: endpoint.tls.then(|| arguments.credentials.tls()).transpose()?,
        },
        tensors: match arguments.tensors {
            Encoding::Binary => Tensors::Binary,
            Encoding::Json => Tensors::Json,
        },
        names: arguments.maps.iter().cloned().collect(),
        tenant_header: arguments.tenant_header.clone(),
        payloads: payloads(arguments)?,
        tolerance: arguments.tolerance,
        connections: arguments.connections,
        threads: arguments.threads,
        timeout: arguments.timeout.0,
        keep_seconds: false,
        keep_timings: false,
    })
}

fn payloads(arguments: &ClientArgs) -> anyhow::Result<Payloads> {
    let mut payloads = Payloads::default();
    for (input, given) in &arguments.shapes {
        let extents: Result<Vec<u64>, _> =
            given.split(['x', ',']).map(|extent| extent.trim().parse()).collect();
        let extents = extents.map_err(|_| {
            anyhow::anyhow!("--shape {input}: expected numbers such as 3x224x224, got `{given}`")
        })?;
        payloads.shapes.insert(input.clone(), extents);
    }
    for (input, given) in &arguments.ranges {
        let ends = given.split_once("..").and_then(|(low, high)| {
            let ends: (f64, f64) = (low.trim().parse().ok()?, high.trim().parse().ok()?);
            (ends.0.is_finite() && ends.1.is_finite() && ends.0 <= ends.1).then_some(ends)
        });
        let ends = ends.with_context(|| {
            format!("--range {input}: expected two numbers such as 0..255, got `{given}`")
        })?;
        payloads.ranges.insert(input.clone(), ends);
    }
    let mut samples = BTreeMap::new();
    for given in &arguments.samples {
        let (model, file) = given.split_once('=').unwrap_or(("", given));
        let text = read_text(Path::new(file), SAMPLES_BYTES).context("--samples")?;
        samples.insert(model.to_owned(), Arc::new(Samples::parse(file, &text)?));
    }
    payloads.samples = samples;
    Ok(payloads)
}
