//! Merges the sources and checks every value separately, so that all mistakes are reported.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};
use units::in_words;

use super::{Config, Effective, Origin, Problem, Problems, fields, models_section, sections};

/// One value from a flag or a variable.
#[derive(Clone, Debug)]
pub struct Assignment {
    /// `section.key`.
    pub path: String,
    /// Text as typed. Read as TOML if the option is not text.
    pub raw: String,
    /// Where the value came from.
    pub origin: Origin,
}

/// The sources of the configuration.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// A configuration file and its text.
    pub file: Option<(PathBuf, String)>,
    /// Environment variables by name. Unknown ones are ignored, because orchestrators add their own.
    pub environment: Vec<(String, String)>,
    /// Flags, each after what it overrides.
    pub flags: Vec<Assignment>,
}

/// Prefix of environment variables.
const PREFIX: &str = "TESSERA_";

/// A section: its name, its keys in order, its defaults, and a check for a key's value.
struct Section {
    name: &'static str,
    keys: &'static [&'static str],
    defaults: Table,
    check: fn(&str, &Value) -> Result<(), String>,
}

fn section<T: DeserializeOwned + Serialize + Default>(name: &'static str) -> Section {
    Section {
        name,
        keys: fields::of::<T>(),
        defaults: Table::try_from(T::default()).unwrap_or_default(),
        check: |key, value| {
            let one = Table::from_iter([(key.to_owned(), value.clone())]);
            one.try_into::<T>().map(drop).map_err(|error| in_words(error.message()))
        },
    }
}

fn all() -> [Section; 8] {
    [
        section::<sections::Server>("server"),
        section::<sections::Repository>("repository"),
        section::<sections::Devices>("devices"),
        section::<sections::Lanes>("lanes"),
        section::<sections::Limits>("limits"),
        section::<sections::RateLimits>("rate_limit"),
        section::<sections::Metrics>("metrics"),
        section::<sections::Partition>("partition"),
    ]
}

/// Valid values by section, with their origins.
pub struct Merged {
    sections: BTreeMap<&'static str, Table>,
    models: Table,
    origins: BTreeMap<String, Origin>,
    file: Option<PathBuf>,
}

/// Merges all sources, or returns every mistake in them.
pub fn merge(sources: &Sources) -> Result<Merged, Problems> {
    let mut problems = Vec::new();
    let mut merged = Merged {
        sections: BTreeMap::new(),
        models: Table::new(),
        origins: BTreeMap::new(),
        file: sources.file.as_ref().map(|(path, _)| path.clone()),
    };
    let mut file = read_file(sources, &mut problems);
    if let Some(models) = file.remove("models") {
        match models {
            Value::Table(models) => merged.models = models,
            _ => problems.push(Problem::new(
                "models",
                "expected tables like [models.resnet50]",
                &merged.file_origin(),
            )),
        }
    }
    let known = all();
    for section in &known {
        let mut values = section.defaults.clone();
        match file.remove(section.name) {
            None => {}
            Some(Value::Table(given)) => merged.take_file(section, given, &mut values, &mut problems),
            Some(_) => {
                let message = format!("expected a section [{}]", section.name);
                problems.push(Problem::new(section.name, &message, &merged.file_origin()));
            }
        }
        for assignment in environment(section, &sources.environment) {
            merged.assign(section, &assignment, &mut values, &mut problems);
        }
        merged.sections.insert(section.name, values);
    }
    let names: Vec<&str> = known.iter().map(|section| section.name).chain(["models"]).collect();
    for name in file.keys() {
        problems.push(Problem::new(name, &fields::unknown(name, &names, "section"), &merged.file_origin()));
    }
    for flag in &sources.flags {
        let (name, _) = flag.path.split_once('.').unwrap_or((&flag.path, ""));
        match known.iter().find(|section| section.name == name) {
            Some(section) => {
                let mut values = merged.sections.remove(section.name).unwrap_or_default();
                merged.assign(section, flag, &mut values, &mut problems);
                merged.sections.insert(section.name, values);
            }
            None if name == "models" => merged.assign_model(flag, &mut problems),
            None => problems.push(Problem::new(
                &flag.path,
                &fields::unknown(name, &names, "section"),
                &flag.origin,
            )),
        }
    }
    models_section::check(&merged.models, |path| merged.origin(path), &mut problems);
    if problems.is_empty() { Ok(merged) } else { Err(Problems(problems)) }
}

fn read_file(sources: &Sources, problems: &mut Vec<Problem>) -> Table {
    let Some((path, text)) = &sources.file else { return Table::new() };
    text.parse::<Table>().unwrap_or_else(|error| {
        let line =
            error.span().map_or(0, |span| text.bytes().take(span.start).filter(|&b| b == b'\n').count() + 1);
        let message = format!("line {line}: {}", error.message());
        problems.push(Problem::new("", &message, &Origin::File(path.clone())));
        Table::new()
    })
}

fn environment(section: &Section, variables: &[(String, String)]) -> Vec<Assignment> {
    let mut found = Vec::new();
    for key in section.keys {
        let name = format!("{PREFIX}{}_{}", section.name, key).to_ascii_uppercase();
        if let Some((_, raw)) = variables.iter().find(|(variable, _)| *variable == name) {
            let path = format!("{}.{key}", section.name);
            found.push(Assignment { path, raw: raw.clone(), origin: Origin::Environment(name) });
        }
    }
    found
}

/// The value of text as typed: as TOML if `check` accepts that, else as plain text.
fn read_text<E>(raw: &str, check: impl Fn(&Value) -> Result<(), E>) -> Result<Value, E> {
    let as_toml = format!("value = {raw}").parse::<Table>().ok().and_then(|mut table| table.remove("value"));
    if let Some(value) = as_toml.filter(|value| check(value).is_ok()) {
        return Ok(value);
    }
    let text = Value::String(raw.to_owned());
    check(&text).map(|()| text)
}

impl Merged {
    fn file_origin(&self) -> Origin {
        self.file.clone().map_or(Origin::Default, Origin::File)
    }

    fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or_else(|| self.file_origin())
    }

    fn take_file(
        &mut self,
        section: &Section,
        given: Table,
        values: &mut Table,
        problems: &mut Vec<Problem>,
    ) {
        let origin = self.file_origin();
        for (key, value) in given {
            let path = format!("{}.{key}", section.name);
            if !section.keys.contains(&key.as_str()) {
                problems.push(Problem::new(&path, &fields::unknown(&key, section.keys, "key"), &origin));
            } else if let Err(message) = (section.check)(&key, &value) {
                problems.push(Problem::new(&path, &message, &origin));
            } else {
                values.insert(key, value);
                self.origins.insert(path, origin.clone());
            }
        }
    }

    fn assign(
        &mut self,
        section: &Section,
        assignment: &Assignment,
        values: &mut Table,
        problems: &mut Vec<Problem>,
    ) {
        let Assignment { path, raw, origin } = assignment;
        let key = path.split_once('.').map_or("", |(_, key)| key);
        if !section.keys.contains(&key) {
            problems.push(Problem::new(path, &fields::unknown(key, section.keys, "key"), origin));
            return;
        }
        match read_text(raw, |value| (section.check)(key, value)) {
            Ok(value) => {
                values.insert(key.to_owned(), value);
                self.origins.insert(path.clone(), origin.clone());
            }
            Err(message) => problems.push(Problem::new(path, &message, origin)),
        }
    }

    /// `--set models.NAME.key=value`.
    fn assign_model(&mut self, flag: &Assignment, problems: &mut Vec<Problem>) {
        let Some((name, key)) = flag.path.strip_prefix("models.").and_then(|rest| rest.rsplit_once('.'))
        else {
            problems.push(Problem::new(&flag.path, "expected models.NAME.key=value", &flag.origin));
            return;
        };
        match read_text(&flag.raw, |value| models_section::check_key(key, value)) {
            Ok(value) => {
                let model = self.models.entry(name).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(model) = model {
                    model.insert(key.to_owned(), value);
                }
                self.origins.insert(flag.path.clone(), flag.origin.clone());
            }
            Err((inner, message)) => {
                problems.push(Problem::new(&format!("{}{inner}", flag.path), &message, &flag.origin));
            }
        }
    }

    /// Reads the checked values into their types.
    pub fn into_config(self) -> Result<Config, Problems> {
        let effective = self.effective();
        let Self { mut sections, models, .. } = self;
        Ok(Config {
            server: read(&mut sections, "server")?,
            repository: read(&mut sections, "repository")?,
            devices: read(&mut sections, "devices")?,
            lanes: read(&mut sections, "lanes")?,
            limits: read(&mut sections, "limits")?,
            rate_limit: read(&mut sections, "rate_limit")?,
            metrics: read(&mut sections, "metrics")?,
            partition: read(&mut sections, "partition")?,
            models: Value::Table(models).try_into().map_err(|error| whole("models", &error))?,
            effective,
        })
    }

    fn effective(&self) -> Vec<Effective> {
        let mut effective = Vec::new();
        for section in all() {
            let Some(values) = self.sections.get(section.name) else { continue };
            for key in section.keys {
                let path = format!("{}.{key}", section.name);
                let origin = self.origins.get(&path).cloned().unwrap_or(Origin::Default);
                let value = values.get(*key).map(Value::to_string);
                effective.push(Effective { path, header: section.name.to_owned(), value, origin });
            }
        }
        for (name, settings) in &self.models {
            for (key, value) in settings.as_table().into_iter().flatten() {
                let path = format!("models.{name}.{key}");
                let origin = self.origin(&path);
                let header = format!("models.{}", quoted(name));
                effective.push(Effective { path, header, value: Some(value.to_string()), origin });
            }
        }
        effective
    }
}

/// A key, quoted for TOML if necessary.
fn quoted(key: &str) -> String {
    let bare =
        !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
    if bare { key.to_owned() } else { Value::from(key).to_string() }
}

fn read<T: DeserializeOwned>(
    sections: &mut BTreeMap<&'static str, Table>,
    name: &'static str,
) -> Result<T, Problems> {
    sections.remove(name).unwrap_or_default().try_into().map_err(|error| whole(name, &error))
}

fn whole(name: &str, error: &toml::de::Error) -> Problems {
    Problems(vec![Problem::new(name, &in_words(error.message()), &Origin::Default)])
}
