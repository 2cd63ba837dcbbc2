//! `tessera check`: lists all errors in a configuration and a repository, with their places.

use std::process::ExitCode;
use std::time::Duration;

use gpulet_core::profile::{Profile, Quantile};
use models::repository::{Found, Pbtxt, Repository};
use models::{
    EffectiveConfig, EngineChoice, LaneChoice, Loader, ModelName, ModelSettings, Version, inspect,
    warm_and_profile,
};
use node::batching;
use node::config::{Config, Problem, Problems};
use node::devices::Devices;
use node::environment::Environment;
use node::objectives;
use node::output;
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

fn warning(place: impl Into<String>, message: impl Into<String>) -> Remark {
    Remark { kind: "warning", place: place.into(), message: message.into() }
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
    remarks.extend(tight_objectives(config, &profiles));
    let ort = models::engine::ort::discover(config.repository.ort_library.as_deref(), &environment.ort);
    if let (Some(_), Err(missing)) = (&config.repository.ort_library, &ort) {
        remarks.push(error("repository.ort_library", missing.to_string()));
    }
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
    let loader = Loader::new(ort);
    let checker = Checker { config, repository: &repository, lanes, loader: &loader, load };
    for (name, found) in &snapshot.models {
        let settings = config.models.get(name.as_str()).cloned().unwrap_or_default();
        checker.check_model((name, found), &settings, &mut remarks);
    }
    (snapshot.models.len(), remarks)
}

/// Objectives that no batch can meet, by the profiles.
fn tight_objectives(config: &Config, profiles: &[Profile]) -> Vec<Remark> {
    let of_model = |(name, settings): (&String, &ModelSettings)| {
        let slo = settings.slo?.0;
        let fastest = profiles.iter().filter(|profile| profile.model() == name).filter_map(|profile| {
            let us = profile.latency_us(Quantile::P50, 1, profile.units_total()).ok()?;
            Some((Duration::from_nanos((us * 1e3) as u64), profile.device()))
        });
        let (shortest, device) = fastest.min()?;
        let told = objectives::too_tight(slo, shortest, &format!("by its profile for `{device}`"))?;
        let path = format!("models.{name}.slo");
        Some(warning(&path, format!("{told} ({})", config.origin(&path))))
    };
    config.models.iter().filter_map(of_model).collect()
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

/// What the checks of all models share.
struct Checker<'a> {
    config: &'a Config,
    repository: &'a Repository,
    /// Number of lanes, if it is known.
    lanes: Option<usize>,
    loader: &'a Loader,
    /// Whether to load the models.
    load: bool,
}

impl Checker<'_> {
    fn check_model(
        &self,
        (name, found): (&ModelName, &Found),
        settings: &ModelSettings,
        remarks: &mut Vec<Remark>,
    ) {
        let pbtxt = match self.repository.config(name) {
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
            let known: Vec<String> = found.versions.iter().map(ToString::to_string).collect();
            let known = known.join(", ");
            remarks.push(error(
                place,
                format!("version {missing} is not in the repository: expected some of {known}"),
            ));
        }
        let selected = versions.select(&found.versions);
        if selected.is_empty() {
            remarks.push(error(
                name.as_str(),
                "no version to serve: expected a folder such as `1` with a `model.onnx` in it",
            ));
        }
        if let (Some(LaneChoice::Listed(numbers)), Some(lanes)) = (&settings.lanes, self.lanes)
            && let Some(number) = numbers.iter().find(|number| **number as usize >= lanes)
        {
            let path = format!("models.{name}.lanes");
            let origin = self.config.origin(&path);
            remarks.push(error(
                path,
                format!("no lane {number}: expected numbers below {lanes}, the number of lanes ({origin})"),
            ));
        }
        for version in selected {
            let place = format!("{name}/{version}");
            match self.check_version(name, version, pbtxt.as_ref(), settings) {
                Ok(more) => remarks.extend(more),
                Err(problem) => remarks.push(error(&place, problem)),
            }
        }
    }

    /// Notes and warnings about a version that can be served.
    fn check_version(
        &self,
        name: &ModelName,
        version: Version,
        pbtxt: Option<&Pbtxt>,
        settings: &ModelSettings,
    ) -> Result<Vec<Remark>, String> {
        let files = self.repository.read(name, version, pbtxt).map_err(|problem| problem.to_string())?;
        let signature =
            inspect(&files, &EffectiveConfig::inspection(settings)).map_err(|problem| problem.to_string())?;
        let mut effective = EffectiveConfig::resolve(name, pbtxt, settings, &signature)
            .map_err(|problem| problem.to_string())?;
        if effective.engine == EngineChoice::Auto && settings.engine.is_none() {
            effective.engine = self.config.repository.engine.parse().unwrap_or_default();
        }
        for file in effective.label_files.values() {
            self.repository.labels(name, file).map_err(|problem| problem.to_string())?;
        }
        batching::policy(&effective)?;
        if let (EngineChoice::Named("ort"), Err(missing)) = (effective.engine, &self.loader.ort) {
            return Err(format!("engine `ort`: {missing}"));
        }
        if !self.load {
            return Ok(Vec::new());
        }
        let place = format!("{name}/{version}");
        let mut session = self
            .loader
            .load(&files, &effective.load_options(1, Vec::new()))
            .map_err(|problem| problem.to_string())?;
        let mut remarks = vec![note(&place, format!("loads on engine `{}`", session.engine()))];
        let measured =
            warm_and_profile(session.as_mut(), &effective).map_err(|problem| problem.to_string())?;
        let shortest = measured.into_iter().map(|(_, time)| time).min();
        if let Some((slo, shortest)) = effective.slo.zip(shortest)
            && let Some(told) = objectives::too_tight(slo, shortest, "measured on one core")
        {
            remarks.push(warning(format!("models.{name}.slo"), told));
        }
        Ok(remarks)
    }
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
