//! `tessera check`: lists all errors in a configuration and a repository, with their places.

use std::process::ExitCode;

use models::repository::{Found, Pbtxt, Repository};
use models::{EffectiveConfig, EngineChoice, Loader, ModelName, ModelSettings, Version, inspect};
use node::batching;
use node::config::{Config, Problem, Problems};
use node::devices::Devices;
use node::environment::Environment;
use node::output;
use serde::Serialize;

/// One error or note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Remark {
    /// `error` or `note`.
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
    let mut remarks: Vec<Remark> =
        Devices::check(config).err().map(|fault| named(&fault)).into_iter().collect();
    let Some(path) = &config.repository.path else {
        remarks.push(note("repository.path", "not set: the built-in model is served"));
        remarks.extend(unknown_models(config, std::iter::once(node::bundled::NAME)));
        return (0, remarks);
    };
    let opened = Repository::open(path).and_then(|repository| {
        let repository = if config.repository.strict { repository } else { repository.lenient() };
        Ok((repository.scan()?, repository))
    });
    let (snapshot, repository) = match opened {
        Ok(opened) => opened,
        Err(problem) => {
            remarks.push(error("repository.path", problem.to_string()));
            return (0, remarks);
        }
    };
    remarks.extend(
        snapshot.ignored.iter().map(|ignored| note(&ignored.entry, format!("ignored: {}", ignored.reason))),
    );
    remarks.extend(unknown_models(config, snapshot.models.keys().map(ModelName::as_str)));
    let loader = load.then(|| {
        Loader::new(models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort))
    });
    for (name, found) in &snapshot.models {
        let settings = config.models.get(name.as_str()).cloned().unwrap_or_default();
        check_model(config, &repository, (name, found), &settings, loader.as_ref(), &mut remarks);
    }
    (snapshot.models.len(), remarks)
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

fn check_model(
    config: &Config,
    repository: &Repository,
    (name, found): (&ModelName, &Found),
    settings: &ModelSettings,
    loader: Option<&Loader>,
    remarks: &mut Vec<Remark>,
) {
    let pbtxt = match repository.config(name) {
        Ok(pbtxt) => pbtxt,
        Err(problem) => return remarks.push(error(name.as_str(), problem.to_string())),
    };
    for ignored in pbtxt.iter().flat_map(|file| &file.ignored) {
        let what = if ignored.is_missed { "not supported and ignored" } else { "has no effect" };
        remarks.push(note(name.as_str(), format!("{}: {what}: {}", ignored.field, ignored.reason)));
    }
    let versions = EffectiveConfig::versions(pbtxt.as_ref(), settings);
    for missing in versions.missing(&found.versions) {
        let place = format!("models.{name}.versions");
        remarks.push(error(place, format!("version {missing} is not in the repository")));
    }
    let selected = versions.select(&found.versions);
    if selected.is_empty() {
        remarks.push(error(
            name.as_str(),
            "no version to serve: expected a folder such as `1` with a `model.onnx` in it",
        ));
    }
    for version in selected {
        let place = format!("{name}/{version}");
        let checked = check_version(config, repository, name, version, pbtxt.as_ref(), settings, loader);
        match checked {
            Ok(None) => {}
            Ok(Some(engine)) => remarks.push(note(&place, format!("loads on engine `{engine}`"))),
            Err(problem) => remarks.push(error(&place, problem)),
        }
    }
}

/// The engine that loaded the model, if loading was requested.
fn check_version(
    config: &Config,
    repository: &Repository,
    name: &ModelName,
    version: Version,
    pbtxt: Option<&Pbtxt>,
    settings: &ModelSettings,
    loader: Option<&Loader>,
) -> Result<Option<&'static str>, String> {
    let files = repository.read(name, version, pbtxt).map_err(|problem| problem.to_string())?;
    let signature =
        inspect(&files, &EffectiveConfig::inspection(settings)).map_err(|problem| problem.to_string())?;
    let mut effective =
        EffectiveConfig::resolve(name, pbtxt, settings, &signature).map_err(|problem| problem.to_string())?;
    if effective.engine == EngineChoice::Auto && settings.engine.is_none() {
        effective.engine = config.repository.engine.parse().unwrap_or_default();
    }
    for file in effective.label_files.values() {
        repository.labels(name, file).map_err(|problem| problem.to_string())?;
    }
    batching::policy(&effective)?;
    let Some(loader) = loader else { return Ok(None) };
    let session =
        loader.load(&files, &effective.load_options(1, Vec::new())).map_err(|problem| problem.to_string())?;
    Ok(Some(session.engine()))
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
                fs::write(root.join("declared/config.pbtxt"), "sequence_batching { }").unwrap();
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
