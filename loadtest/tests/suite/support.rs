//! Workloads, runs, and what their reports say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use hdrhistogram::Histogram;
use hdrhistogram::serialization::Deserializer;
use loadtest::report::{Figures, Latency};
use loadtest::{Credentials, Drive, LoadError, Payloads, Protocol, Report, Session, Settings, Tensors};
use workload::{Extent, Stages, Workload};

use crate::server::Server;

pub const PROTOCOLS: [Protocol; 3] = [Protocol::Http, Protocol::Http2, Protocol::Grpc];

/// One model `m` with an SLO so wide that no busy machine fails it; `lines` go below its section.
pub fn one_model(duration: &str, rate: f64, lines: &str) -> Workload {
    workload(&format!(
        "name = 'test'\nduration = '{duration}'\n[models.m]\nslo = '20s'\nrate = {rate:?}\n{lines}"
    ))
}

/// The same, evenly spaced.
pub fn even(duration: &str, rate: f64) -> Workload {
    one_model(duration, rate, "arrivals = { process = 'uniform' }")
}

pub fn workload(text: &str) -> Workload {
    Workload::parse(text, &mut |name: &str| Err(format!("no file {name}"))).unwrap()
}

pub fn settings(server: &Server) -> Settings {
    Settings {
        endpoint: server.endpoint(),
        credentials: Credentials::default(),
        tensors: Tensors::Binary,
        names: BTreeMap::new(),
        payloads: Payloads::default(),
        tolerance: 1e-3,
        connections: 1_024,
        threads: 1,
        timeout: Duration::from_secs(20),
        keep_seconds: false,
        keep_timings: false,
        tenant_header: None,
    }
}

/// Time of a workload that ends by time, in nanoseconds.
pub fn time(workload: &Workload) -> u64 {
    let Extent::Time(time) = workload.extent else { panic!("a workload that ends by time") };
    time
}

pub fn open_loop(workload: &Workload) -> Drive {
    Drive::Open(Stages::constant(time(workload)).unwrap())
}

/// Opens a session and sends the workload in open loop; the server's memory starts with the run.
pub fn run(server: &Server, workload: &Workload, settings: Settings) -> Result<Report, LoadError> {
    let session = Session::open(workload, settings)?;
    server.forget();
    session.run(workload, &open_loop(workload), &Arc::new(AtomicBool::new(false)), &mut |_| {})
}

/// Every request is counted once, in the figures and in the seconds.
pub fn assert_all_ended(report: &Report) {
    assert_all_offered_ended(report);
    let seconds = &report.seconds;
    let all = |count: fn(&loadtest::report::Second) -> u64| seconds.iter().map(count).sum::<u64>();
    let by_second = [all(|s| s.offered), all(|s| s.answered + s.refused + s.failed), all(|s| s.good)];
    // There is no warm-up here, so the seconds and the figures are about the same requests.
    assert_eq!(by_second, [report.total.offered, report.total.offered, report.total.good]);
}

/// Every request is counted once in the figures.
pub fn assert_all_offered_ended(report: &Report) {
    let ended = |figures: &Figures| {
        let refused: u64 = figures.refused.values().sum();
        let failed: u64 = figures.failed.values().sum();
        figures.answered + refused + failed
    };
    assert_eq!(report.total.offered, ended(&report.total), "{:?}", report.total);
    for model in &report.models {
        assert_eq!(model.figures.offered, ended(&model.figures), "{model:?}");
    }
    assert_eq!(report.models.iter().map(|model| model.figures.offered).sum::<u64>(), report.total.offered);
}

pub fn times(latency: &Latency) -> Histogram<u64> {
    let bytes = BASE64_STANDARD.decode(&latency.histogram).unwrap();
    Deserializer::new().deserialize(&mut bytes.as_slice()).unwrap()
}

/// Number of answers that took at least this many milliseconds, from the histogram of the report.
pub fn slower(latency: &Latency, millis: u64) -> u64 {
    times(latency).count_between(millis * 1_000, u64::MAX)
}
