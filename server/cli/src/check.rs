//! `tessera check`: lists all errors in a configuration and a repository, with their places.

use std::process::ExitCode;

use models::{EngineChoice, Ensemble, Format, Loader, ModelFiles, warm_and_profile};
use node::catalog::{Checks, Finding, Planned, Severity, Source};
use node::config::{Config, Problem, Problems};
use node::devices::Devices;
use node::environment::Environment;
use node::output;
use node::rate_limits::Resources;
use serde::Serialize;

/// One error, warning or note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// `error`, `warning` or `note`.
    pub kind: &'static str,
    /// A key of the configuration or an entry of the repository.
    pub place: String,
    /// What is wrong, and what is expected.
    pub message: String,
}

fn error(place: impl Into<String>, message: impl Into<String>) -> Remark {
    Remark { kind: "error", place: place.into(), message: message.into() }
}

fn note(place: impl Into<String>, message: impl Into<String>) -> Remark {
    Remark { kind: "note", place: place.into(), message: message.into() }
}

#[derive(Serialize)]
struct Report<'a> {
    sound: bool,
    models: usize,
    remarks: &'a [Remark],
}

/// Checks and prints the findings. Exit code 1 if there are errors.
pub fn run(
    config: &Result<Config, Problems>,
    environment: &Environment,
    load: bool,
    json: bool,
) -> anyhow::Result<ExitCode> {
    let (models, remarks) = match config {
        Err(Problems(problems)) => (0, problems.iter().map(as_error).collect()),
        Ok(config) => check(config, environment, load),
    };
    let errors = remarks.iter().filter(|remark| remark.kind == "error").count();
    if json {
        output::line(&serde_json::to_string(&Report { sound: errors == 0, models, remarks: &remarks })?);
    } else {
        for Remark { kind, place, message } in &remarks {
            output::line(&if place.is_empty() {
                format!("{kind}: {message}")
            } else {
                format!("{kind}: {place}: {message}")
            });
        }
        let plural = |count: usize| if count == 1 { "" } else { "s" };
        let found =
            if errors == 0 { "no errors".to_owned() } else { format!("{errors} error{}", plural(errors)) };
        output::line(&format!("{found}; {models} model{} checked", plural(models)));
    }
    Ok(if errors == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Number of models, and remarks about the repository and its models.
fn check(config: &Config, environment: &Environment, load: bool) -> (usize, Vec<Remark>) {
    let mut remarks = Vec::new();
    let (lanes, profiles) = Devices::check(config).unwrap_or_else(|fault| {
        remarks.push(named(&fault));
        (None, Vec::new())
    });
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    if let (Some(_), Err(missing)) = (&config.repository.ort_library, &ort) {
        remarks.push(error("repository.ort_library", missing.to_string()));
    }
    let opened = Source::open(&config.repository);
    let opened = opened.and_then(|source| Ok((source.ignored()?, source)));
    let (ignored, source) = match opened {
        Ok(opened) => opened,
        Err(problem) => {
            remarks.push(error("repository.path", problem.to_string()));
            return (0, remarks);
        }
    };
    let source = match source.with_pipelines(config.pipelines.clone()) {
        Ok(source) => source,
        Err(problem) => {
            remarks.push(error("pipelines", problem));
            return (0, remarks);
        }
    };
    let source = match source.with_families(config.families.clone()) {
        Ok(source) => source,
        Err(problem) => {
            remarks.push(error("families", problem));
            return (0, remarks);
        }
    };
    remarks
        .extend(ignored.iter().map(|ignored| note(&ignored.entry, format!("ignored: {}", ignored.reason))));
    let names = match source.names() {
        Ok(names) => names,
        Err(refusal) => {
            remarks.push(error("repository.path", refusal.message));
            return (0, remarks);
        }
    };
    remarks.extend(unknown_models(config, names.keys().map(String::as_str)));
    let loader = Loader::new(ort);
    let resources = Resources::new(&config.rate_limit);
    let checks = Checks {
        source: &source,
        engine: config.repository.engine.parse().unwrap_or_default(),
        resources: &resources,
        caches: config.cache.max_bytes.0 > 0,
        lanes,
        profiles: &profiles,
    };
    for name in names.keys() {
        let Ok(model) = name.parse() else { continue };
        let settings = config.models.get(name).cloned().unwrap_or_default();
        let mut each = |planned: &Planned, files: &ModelFiles| session(&loader, load, planned, files);
        let findings = checks.model(&model, &settings, &mut each);
        remarks.extend(findings.into_iter().map(|finding| as_remark(config, finding)));
    }
    if config.repository.path.is_none() {
        remarks.push(note("repository.path", "not set: the built-in model is served"));
        return (0, remarks);
    }
    (names.len(), remarks)
}

/// A finding, with the origin of the setting that it is about.
fn as_remark(config: &Config, Finding { severity, place, message }: Finding) -> Remark {
    let kind = match severity {
        Severity::Error => "error",
        Severity::Warning => "warning",
        Severity::Note => "note",
    };
    let message =
        if place.starts_with("models.") { format!("{message} ({})", config.origin(&place)) } else { message };
    Remark { kind, place, message }
}

/// Checks that an engine runs a version; with `load`, by loading it.
fn session(loader: &Loader, load: bool, planned: &Planned, files: &ModelFiles) -> Vec<Finding> {
    let place = format!("{}/{}", files.name, files.version);
    let finding = |severity, message| Finding { severity, place: place.clone(), message };
    if files.format == Format::Ensemble {
        let steps = Ensemble::of(files).map_or(0, |ensemble| ensemble.steps.len());
        let note = format!("an ensemble of {steps} steps: its models are checked with it when it is loaded");
        return vec![finding(Severity::Note, note)];
    }
    if let (EngineChoice::Named("ort"), Err(missing)) = (planned.config.engine, &loader.ort) {
        return vec![finding(Severity::Error, format!("engine `ort`: {missing}"))];
    }
    if !load {
        return Vec::new();
    }
    let loaded = loader.load(files, &planned.config.load_options(&[], false));
    let warmed = loaded.and_then(|mut session| {
        let warm = warm_and_profile(session.as_mut(), &planned.config)?;
        Ok((session.engine(), warm, planned.check_sequences(session.signature())))
    });
    match warmed {
        Ok((_, _, Err(problem))) => vec![finding(Severity::Error, problem)],
        Ok((engine, warm, Ok(()))) => {
            let loads = finding(Severity::Note, format!("loads on engine `{engine}`"));
            let objective = planned.objective(&warm.times, "measured on one core");
            std::iter::once(loads).chain(objective).collect()
        }
        Err(problem) => vec![finding(Severity::Error, problem.to_string())],
    }
}

fn unknown_models<'a>(config: &Config, known: impl Iterator<Item = &'a str>) -> Vec<Remark> {
    let Problems(problems) = config.check_models(known).err().unwrap_or_default();
    problems.iter().map(as_error).collect()
}

/// An error whose message starts with the key.
fn named(fault: &anyhow::Error) -> Remark {
    let message = format!("{fault:#}");
    match message.split_once(": ") {
        Some((key, message)) => error(key, message),
        None => error("", message),
    }
}

fn as_error(problem: &Problem) -> Remark {
    error(&problem.path, format!("{} ({})", problem.message, problem.origin))
}

#[cfg(test)]
mod tests {
    use super::*;
    use node::config::Sources;
    use std::fs;

    fn remarks_on(prepare: impl FnOnce(&std::path::Path), settings: &str, load: bool) -> Vec<Remark> {
        let folder = tempfile::tempdir().unwrap();
        prepare(folder.path());
        let text = format!("[repository]\npath = {:?}\n{settings}", folder.path());
        let sources = Sources { file: Some(("t.toml".into(), text)), ..Sources::default() };
        check(&Config::load(&sources).unwrap(), &Environment::default(), load).1
    }

    fn bundled(root: &std::path::Path, name: &str, bytes: &[u8]) {
        fs::create_dir_all(root.join(name).join("1")).unwrap();
        fs::write(root.join(name).join("1/model.onnx"), bytes).unwrap();
    }

    #[test]
    fn a_sound_repository_has_no_errors_and_loads() {
        let remarks =
            remarks_on(|root| bundled(root, "digits", node::bundled::MODEL), "engine = \"tract\"", true);
        assert_eq!(remarks, [note("digits/1", "loads on engine `tract`")]);
    }

    #[test]
    fn every_broken_model_is_named() {
        let remarks = remarks_on(
            |root| {
                bundled(root, "truncated", &node::bundled::MODEL[..1000]);
                fs::create_dir(root.join("empty")).unwrap();
                bundled(root, "good", node::bundled::MODEL);
                bundled(root, "policy", node::bundled::MODEL);
                bundled(root, "declared", node::bundled::MODEL);
                fs::write(
                    root.join("declared/config.pbtxt"),
                    "sequence_batching { iterative_sequence: true }",
                )
                .unwrap();
            },
            "[models.good]\nversions = [4]\n[models.missing]\nslo = \"5ms\"\n[models.policy]\nbatching = { policy = \"grady\" }",
            false,
        );
        let found: Vec<_> = remarks.iter().map(|remark| (remark.kind, remark.place.as_str())).collect();
        let expected = [
            ("error", "models.missing"),
            ("error", "declared"),
            ("error", "empty"),
            ("error", "models.good.versions"),
            ("error", "good"),
            ("error", "policy/1"),
            ("error", "truncated/1"),
        ];
        assert_eq!(found, expected, "{remarks:?}");
    }

    /// The objective that a warning about `models.slow.slo` asks for.
    fn expected_objective(remarks: &[Remark], source: &str) -> String {
        let warnings: Vec<_> = remarks.iter().filter(|remark| remark.kind == "warning").collect();
        let [Remark { place, message, .. }] = warnings.as_slice() else { panic!("{remarks:?}") };
        assert!(place == "models.slow.slo" && message.contains(source), "{message}");
        assert!(message.starts_with("5ms cannot be met: one request alone takes 2"), "{message}");
        let (_, expected) = message.split_once("expected ").unwrap();
        let (expected, rest) = expected.split_once(" or more").unwrap();
        assert!(rest.contains("t.toml:"), "{message}");
        expected.to_owned()
    }

    #[test]
    fn an_impossible_objective_is_told_with_one_that_would_do() {
        let place = |root: &std::path::Path| {
            fs::create_dir_all(root.join("slow/1")).unwrap();
            let tensor =
                |name: &str| format!("[{{ name = \"{name}\", datatype = \"FP32\", dims = [-1, 4] }}]");
            let (x, y) = (tensor("x"), tensor("y"));
            let text = format!(
                "max_batch = 2\ninputs = {x}\noutputs = {y}\ntime = {{ alpha_us = 20000, beta_us = 1000 }}"
            );
            fs::write(root.join("slow/1/model.toml"), text).unwrap();
        };
        let slo = |slo: &str| format!("[models.slow]\nslo = \"{slo}\"");
        let enough = expected_objective(&remarks_on(place, &slo("5ms"), true), "measured on one core");
        let remarks = remarks_on(place, &slo(&enough), true);
        assert!(remarks.iter().all(|remark| remark.kind == "note"), "{remarks:?}");
        assert!(!remarks_on(place, &slo("5ms"), false).iter().any(|remark| remark.kind == "warning"));

        let profile = tempfile::NamedTempFile::new().unwrap();
        let lines = concat!(
            r#"{"profile":{"version":1,"model":"slow","device":"cpu","engine":"synthetic","source":"measured","units_total":1}}"#,
            "\n",
            r#"{"cell":{"batch":1,"units":1,"p50_us":25000,"p95_us":26000,"p99_us":27000,"count":100}}"#,
            "\n"
        );
        fs::write(profile.path(), lines).unwrap();
        let profiled =
            |objective: &str| format!("[partition]\nprofiles = [{:?}]\n{}", profile.path(), slo(objective));
        let remarks = remarks_on(place, &profiled("5ms"), false);
        assert_eq!(expected_objective(&remarks, "by its profile for `cpu`"), "52ms");
        assert_eq!(remarks_on(place, &profiled("52ms"), false), []);
    }

    #[test]
    fn settings_that_do_not_fit_the_machine_are_errors_as_they_are_for_serve() {
        for (settings, place) in [
            ("[lanes]\ncount = 5000", "lanes.count"),
            ("[lanes]\ncores = [[100000]]", "lanes.cores"),
            ("[partition]\nprofiles = [\"/no/such/profile.jsonl\"]", "partition.profiles"),
            ("[[devices.emulated]]\nkind = \"v100\"\nmemory = \"1GiB\"", "devices.emulated[0].kind"),
            ("[models.digit]\nslo = \"5ms\"", "models.digit"),
        ] {
            let sources =
                Sources { file: Some(("t.toml".into(), settings.to_owned())), ..Sources::default() };
            let remarks = check(&Config::load(&sources).unwrap(), &Environment::default(), false).1;
            let errors: Vec<_> = remarks.iter().filter(|remark| remark.kind == "error").collect();
            assert_eq!(errors.len(), 1, "{settings}: {remarks:?}");
            assert_eq!(errors[0].place, place, "{remarks:?}");
        }
    }
}
