//! `tessera doctor`: reports what was found, what was not, and why. It serves no requests and changes nothing.

use std::fmt::Write as _;
use std::fs;
use std::net::{SocketAddr, TcpListener};
use std::process::ExitCode;

use gpulet_cuda::Backend;
use models::repository::Repository;
use node::config::{Config, Gpus, Problems};
use node::devices::gpus::mps;
use node::environment::Environment;
use node::{lanes, output};
use serde::Serialize;

/// The verdict of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Found and usable.
    Ok,
    /// Not found and not required.
    Absent,
    /// A problem that prevents something from working.
    Problem,
}

/// One finding.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub subject: &'static str,
    pub verdict: Verdict,
    /// What was found, or why nothing was found.
    pub detail: String,
}

fn finding(subject: &'static str, verdict: Verdict, detail: impl Into<String>) -> Finding {
    Finding { subject, verdict, detail: detail.into() }
}

#[derive(Serialize)]
struct Report<'a> {
    version: &'static str,
    healthy: bool,
    findings: &'a [Finding],
}

/// Checks the machine and prints the findings. Exit code 1 if there is a problem.
pub fn run(
    config: &Result<Config, Problems>,
    environment: &Environment,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let findings = examine(config, environment);
    let healthy = findings.iter().all(|finding| finding.verdict != Verdict::Problem);
    if json {
        let report = Report { version: env!("CARGO_PKG_VERSION"), healthy, findings: &findings };
        output::line(&serde_json::to_string(&report)?);
    } else {
        let rows = findings.into_iter().map(|finding| {
            let verdict = match finding.verdict {
                Verdict::Ok => "ok",
                Verdict::Absent => "-",
                Verdict::Problem => "PROBLEM",
            };
            vec![finding.subject.to_owned(), verdict.to_owned(), finding.detail]
        });
        output::write(output::table(&["item", "status", "details"], rows).as_bytes());
    }
    Ok(if healthy { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(config: &Result<Config, Problems>, environment: &Environment) -> Vec<Finding> {
    let mut findings = Vec::new();
    match config {
        Ok(_) => findings.push(finding("configuration", Verdict::Ok, "no errors")),
        Err(problems) => {
            let each = problems.0.iter();
            findings
                .extend(each.map(|problem| finding("configuration", Verdict::Problem, problem.to_string())));
        }
    }
    let config = config.as_ref().ok();
    findings.push(cores(config));
    findings.push(memory());
    findings.push(nvidia(config, environment));
    findings.push(finding("engine tract", Verdict::Ok, "built in: runs most ONNX models"));
    findings.push(ort(config, environment));
    findings.push(finding("engine synthetic", Verdict::Ok, "built in: takes as long as its profile says"));
    if let Some(config) = config {
        findings.push(repository(config));
        findings.push(port("server.http", config.server.http));
        findings.push(port("server.grpc", config.server.grpc));
        findings.push(port("server.metrics", config.server.metrics));
        findings.push(port("server.admin", config.server.admin));
    }
    findings
}

fn cores(config: Option<&Config>) -> Finding {
    let allowed = match gpulet::allowed_cores() {
        Ok(allowed) => allowed,
        Err(error) => return finding("cores", Verdict::Problem, error.to_string()),
    };
    let mut detail = format!("{} usable: {allowed:?}", allowed.len());
    if let Some(model) = first_value("/proc/cpuinfo", "model name") {
        let _ = write!(detail, ", {model}");
    }
    if let Some(quota) = cgroup_cores() {
        let _ = write!(detail, ", limited by its cgroup to {quota:.1} cores of time");
    }
    match config.map(|config| lanes::core_sets(&config.lanes, &allowed)) {
        Some(Ok(sets)) => {
            let _ = write!(detail, "; lanes: {sets:?}");
        }
        Some(Err(problem)) => return finding("cores", Verdict::Problem, problem),
        None => {}
    }
    finding("cores", Verdict::Ok, detail)
}

fn memory() -> Finding {
    let Some(total) = first_value("/proc/meminfo", "MemTotal").and_then(|text| kibibytes(&text)) else {
        return finding("memory", Verdict::Problem, "cannot read /proc/meminfo");
    };
    let free = first_value("/proc/meminfo", "MemAvailable").and_then(|text| kibibytes(&text)).unwrap_or(0);
    let mut detail = format!("{} MiB, {} MiB available", total >> 10, free >> 10);
    let limit = read("/sys/fs/cgroup/memory.max").and_then(|text| text.trim().parse::<u64>().ok());
    if let Some(limit) = limit {
        let _ = write!(detail, ", limited by its cgroup to {} MiB", limit >> 20);
    }
    finding("memory", Verdict::Ok, detail)
}

/// Queries the driver like `devices.gpus = "auto"`, without using a GPU.
fn nvidia(config: Option<&Config>, environment: &Environment) -> Finding {
    const SUBJECT: &str = "NVIDIA GPU";
    let found = match gpulet_cuda::probe() {
        Ok(found) => found,
        Err(reason) => {
            return finding(SUBJECT, Verdict::Absent, format!("{reason}; models run on CPU cores"));
        }
    };
    let forced = config.and_then(|config| config.devices.gpu_backend.as_deref()?.parse().ok());
    let mps = mps(environment);
    let mut lines = Vec::with_capacity(found.len());
    for gpu in &found {
        let (driver, memory) = (gpulet_cuda::dotted(gpu.driver_version), gpu.memory_bytes >> 20);
        let line =
            format!("gpu{}: {}, {} SMs, {memory} MiB, driver {driver}", gpu.ordinal, gpu.name, gpu.sms);
        match gpulet_cuda::choose(gpu, &mps, forced) {
            Ok(choice) => {
                let passed = choice.passed_over.iter().filter(|(backend, _)| *backend != Backend::Mig);
                let passed: Vec<String> =
                    passed.map(|(backend, why)| format!("; not {backend}: {why}")).collect();
                lines.push(format!("{line}: {}{}", choice.backend, passed.concat()));
            }
            Err(error) => return finding(SUBJECT, Verdict::Problem, format!("{line}: {error}")),
        }
    }
    if config.is_none_or(|config| config.devices.gpus == Gpus::Off) {
        lines.push("not used: set devices.gpus = \"auto\"".to_owned());
    }
    finding(SUBJECT, Verdict::Ok, lines.join("; "))
}

fn ort(config: Option<&Config>, environment: &Environment) -> Finding {
    let configured = config.and_then(|config| config.repository.ort_library.as_deref());
    match models::engine::ort::discover(configured, &environment.ort) {
        Ok(library) => {
            let detail = format!("ONNX Runtime {} from {}", library.version, library.path.display());
            finding("engine ort", Verdict::Ok, detail)
        }
        Err(missing) => {
            // Only a library that was configured counts as missing.
            let named = configured.is_some() || environment.ort.ort_dylib_path.is_some();
            let verdict = if named { Verdict::Problem } else { Verdict::Absent };
            let hint = "; to install it: `pip install 'onnxruntime>=1.31'`";
            finding("engine ort", verdict, format!("{missing}{hint}"))
        }
    }
}

fn repository(config: &Config) -> Finding {
    let Some(path) = &config.repository.path else {
        return finding("repository", Verdict::Absent, "not set: the built-in model is served");
    };
    if matches!(config.repository.remote(), Ok(Some(_))) {
        return finding("repository", Verdict::Ok, format!("{}: `tessera check` reads it", path.display()));
    }
    match Repository::open(path).and_then(|repository| repository.scan()) {
        Ok(snapshot) => {
            let mut detail = format!("{}: {} models", path.display(), snapshot.models.len());
            for ignored in &snapshot.ignored {
                let _ = write!(detail, "; ignored `{}`: {}", ignored.entry, ignored.reason);
            }
            finding("repository", Verdict::Ok, detail)
        }
        Err(error) => finding("repository", Verdict::Problem, error.to_string()),
    }
}

fn port(subject: &'static str, address: SocketAddr) -> Finding {
    match TcpListener::bind(address) {
        Ok(_) => finding(subject, Verdict::Ok, format!("{address} is free")),
        Err(error) => finding(subject, Verdict::Problem, format!("cannot listen on {address}: {error}")),
    }
}

fn read(path: &str) -> Option<String> {
    fs::read_to_string(path).ok()
}

/// The value of the first `name: value` line of a file.
fn first_value(path: &str, name: &str) -> Option<String> {
    let text = read(path)?;
    let (_, value) =
        text.lines().filter_map(|line| line.split_once(':')).find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn kibibytes(text: &str) -> Option<u64> {
    text.strip_suffix("kB")?.trim().parse().ok()
}

/// Number of cores that cgroup v2 allows, if it sets a limit.
fn cgroup_cores() -> Option<f64> {
    let text = read("/sys/fs/cgroup/cpu.max")?;
    let (quota, period) = text.trim().split_once(' ')?;
    Some(quota.parse::<f64>().ok()? / period.parse::<f64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::config::Sources;

    #[test]
    fn every_subject_is_reported_and_a_taken_port_is_a_problem() {
        let taken = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = taken.local_addr().unwrap();
        let file = format!(
            "[server]\nhttp = \"{address}\"\ngrpc = \"127.0.0.1:0\"\nmetrics = \"127.0.0.1:0\"\nadmin = \"127.0.0.1:0\""
        );
        let sources = Sources { file: Some(("t.toml".into(), file)), ..Sources::default() };
        let findings = examine(&Config::load(&sources), &Environment::default());
        let problems: Vec<_> =
            findings.iter().filter(|f| f.verdict == Verdict::Problem).map(|f| f.subject).collect();
        assert_eq!(problems, ["server.http"], "{findings:?}");
        for subject in
            ["configuration", "cores", "memory", "NVIDIA GPU", "engine tract", "engine ort", "repository"]
        {
            assert!(findings.iter().any(|finding| finding.subject == subject), "{subject}");
        }
    }

    #[test]
    fn a_broken_configuration_is_a_finding() {
        let sources = Sources { file: Some(("t.toml".into(), "[sever]".to_owned())), ..Sources::default() };
        let findings = examine(&Config::load(&sources), &Environment::default());
        assert!(
            findings.iter().any(|f| f.verdict == Verdict::Problem && f.detail.contains("server")),
            "{findings:?}"
        );
    }
}
