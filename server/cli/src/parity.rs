//! `tessera parity`: the same workload through the simulator and through a live server on this machine, side by side.
//!
//! Separate runs measure the simulator's inputs first: the time of a request outside the scheduler, the time of a lane
//! between two batches, and the batch times of real models. The comparison is another run.

pub mod arguments;
mod calibration;
mod child;
mod families;
mod fan_out;
mod pipelines;
mod repository;
mod table;

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use http::HeaderName;
use loadtest::{Drive, Endpoint, Protocol, Report, Session, Settings};
use node::environment::Environment;
use node::output;
use router_core::batch::{BatchOptions, Policy};
use sim::{Setup, Simulation};
use workload::{Extent, Model, Stages, Workload};

use crate::load::{interruption, line::Line, request};
use crate::simulate::{self, reading};
use arguments::{ParityArgs, Wire};
use child::{Child, Counted};
use repository::Repository;
use table::Parity;

/// Exit code if the differences exceed the goals.
const DIFFERENT: u8 = 3;

/// Runs both and prints the comparison.
pub fn run(arguments: &ParityArgs, environment: &Environment) -> anyhow::Result<ExitCode> {
    let workload = reading::read(&arguments.workload)?.workload;
    let mut workload = reading::adapt(workload, arguments.rate_scale, arguments.lanes)?;
    check(&workload, arguments)?;
    let line = Line::new(environment.stderr_is_terminal);
    if let Some(models) = &arguments.repository {
        let served = |model: &Model| arguments.served(model).to_owned();
        for found in families::read_qualities(&mut workload, models, served)? {
            output::complain(&found);
        }
    }
    let setup = setup(arguments)?;
    let stop = interruption::flag()?;
    // A batch that is sent to a lane ahead of time waits there for the one before it. That is not overhead of the lane.
    let policy = if setup.policy.plans_ahead() { simulate::DEFAULT_POLICY } else { &arguments.policy };
    let calibrating = ParityArgs { policy: policy.to_owned(), ..arguments.clone() };
    let real = arguments.repository.is_some();
    let calibrated = on_server(&calibrating, &workload, environment, |_, settings| {
        let mut calibrated = workload.clone();
        calibration::measure(&mut calibrated, &settings, real, &stop, &line)?;
        Ok(calibrated)
    });
    line.clear();
    let workload = calibrated?;
    let measured = on_server(arguments, &workload, environment, |child, settings| {
        measure(&workload, settings, &stop, (child, &line))
    });
    line.clear();
    let (measured, counted) = measured?;
    let counted = counted.of_workload(&workload, |model| arguments.served(model));
    anyhow::ensure!(!measured.interrupted, "stopped: nothing to compare");
    let simulated = Simulation::new(&workload, &setup)?.run(&mut |_| {})?;
    let parity = Parity::new(&workload, arguments.repository.is_some(), &simulated, (&measured, &counted));
    if arguments.json {
        output::line(&serde_json::to_string(&parity)?);
    } else {
        output::write(parity.text().as_bytes());
    }
    Ok(if parity.within() { ExitCode::SUCCESS } else { ExitCode::from(DIFFERENT) })
}

/// Refuses workloads that cannot be compared.
fn check(workload: &Workload, arguments: &ParityArgs) -> anyhow::Result<()> {
    for (name, _) in &arguments.client.maps {
        let is_known = workload.models.iter().any(|model| model.name == *name || model.group == *name);
        anyhow::ensure!(is_known, "--map: the workload has no model `{name}`");
    }
    if let Some((_, family, _)) = workload.families().find(|(_, own, _)| arguments.served(own) != own.name) {
        anyhow::bail!("--map {}: is a family: expected a model", family.name);
    }
    if !workload.lanes.changes.is_empty() || workload.lanes.noise.stalls.is_some() {
        anyhow::bail!("{}: lanes that fail or stall cannot be had on a live server", workload.name);
    }
    anyhow::ensure!(
        workload.partition.is_none(),
        "{}: [devices]: not supported here: expected a workload with [lanes]",
        workload.name
    );
    let variants = workload.families().flat_map(|(.., family)| &family.variants);
    let mut variants = variants.filter_map(|variant| workload.models.get(variant.model as usize));
    if let Some(model) = variants.find(|model| model.expected_requests(1_000_000_000) > 0.0) {
        let variant = &model.name;
        anyhow::bail!("models.{variant}.rate: it is a variant of a family: expected no requests of its own");
    }
    if workload.models.iter().any(|model| model.best_effort) {
        anyhow::ensure!(
            arguments.repository.is_some() && workload.lanes.idle_priority,
            "{}: models of best effort run at idle priority on cores: expected --repository, and `idle_priority = true` in [lanes]",
            workload.name
        );
    }
    Ok(())
}

/// Starts a server for the workload, does something with it, and ends it.
fn on_server<T>(
    arguments: &ParityArgs,
    workload: &Workload,
    environment: &Environment,
    job: impl FnOnce(&Child, Settings) -> anyhow::Result<T>,
) -> anyhow::Result<T> {
    let repository = match &arguments.repository {
        Some(path) => Repository::given(path, arguments, workload)?,
        None => Repository::synthetic(workload, arguments)?,
    };
    let child = Child::start(&repository, &environment.command_line)?;
    let mut settings = request::settings(&arguments.client, &endpoint(&child, arguments.protocol))?;
    settings.names = arguments.names(workload);
    if arguments.repository.is_none() {
        let samples = fan_out::samples(workload)?;
        // The rehearsal of the stages alone has no requests of pipelines.
        settings.payloads.of_other_models |= !samples.is_empty();
        settings.payloads.samples.extend(samples);
    }
    if workload.tenants.len() > 1 {
        settings.tenant_header = Some(HeaderName::from_static(repository::TENANT_HEADER));
    }
    let outcome = job(&child, settings);
    child.stop()?;
    outcome
}

/// Runs the workload. Also returns what the server counted after the warm-up.
fn measure(
    workload: &Workload,
    settings: Settings,
    stop: &Arc<AtomicBool>,
    (child, line): (&Child, &Line),
) -> anyhow::Result<(Report, Counted)> {
    let session = Session::open(workload, settings)?;
    let Extent::Time(time) = workload.extent else {
        anyhow::bail!("{}: expected a workload that ends by time", workload.name);
    };
    let drive = Drive::Open(Stages::constant(time)?);
    let warmup_s = workload.warmup as f64 / 1e9;
    let mut before = None;
    let report = session.run(workload, &drive, stop, &mut |live| {
        if before.is_none() && live.elapsed_s >= warmup_s {
            before = Some(child.counted());
        }
        line.show("live  ", live);
    })?;
    let before = before.unwrap_or_else(|| Ok(Counted::default()))?;
    Ok((report, child.counted()?.since(&before)))
}

fn endpoint(child: &Child, wire: Wire) -> Endpoint {
    let (authority, protocol) = match wire {
        Wire::Http => (&child.http, Protocol::Http),
        Wire::Http2 => (&child.http, Protocol::Http2),
        Wire::Grpc => (&child.grpc, Protocol::Grpc),
    };
    Endpoint { authority: authority.clone(), protocol, tls: false }
}

/// The router with the server's configuration.
fn setup(arguments: &ParityArgs) -> anyhow::Result<Setup> {
    let policy = Policy::new(&arguments.policy, &BatchOptions::default())?;
    let limits = node::config::Limits::default();
    let queue_limit = u32::try_from(limits.queue.get()).context("limits.queue")?;
    Ok(Setup {
        margin: node::MARGIN,
        queue_limit,
        queued_bytes_limit: limits.queue_bytes.0,
        ..Setup::new(policy)
    })
}
