//! Merges the sources and checks every value separately, so that all mistakes are reported.

use std::collections::BTreeMap;
use std::path::PathBuf;

use documented::{Documented, DocumentedFields};
use models::ModelSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};
use units::{Lines, in_words, line_at, nearest};

use super::{
    Config, Effective, FamilySettings, Origin, PipelineSettings, Problem, Problems, access, families_section,
    fields, models_section, pipelines_section, sections, tenants_section,
};

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
    /// Environment variables by name.
    pub environment: Vec<(String, String)>,
    /// Flags, each after what it overrides.
    pub flags: Vec<Assignment>,
}

/// Prefix of environment variables.
const PREFIX: &str = "TESSERA_";

/// A section: its name and description, its keys in order with their descriptions, its defaults, and a check for a key's
/// value.
pub(super) struct Section {
    pub name: &'static str,
    pub about: &'static str,
    pub keys: &'static [&'static str],
    pub docs: fn(&str) -> &'static str,
    pub defaults: Table,
    pub check: fn(&str, &Value) -> Result<(), String>,
}

fn section<T: DeserializeOwned + Serialize + Default + Documented + DocumentedFields>(
    name: &'static str,
) -> Section {
    Section {
        name,
        about: T::DOCS,
        keys: fields::of::<T>(),
        docs: |key| T::get_field_docs(key).unwrap_or_default(),
        defaults: Table::try_from(T::default()).unwrap_or_default(),
        check: |key, value| {
            // Serde would read a list as the values of an entry's keys in order.
            let is_list = |entry: &Value| entry.is_array();
            if ["emulated", "nodes"].contains(&key)
                && value.as_array().is_some_and(|entries| entries.iter().any(is_list))
            {
                return Err("expected a list of tables, got a list of lists".to_owned());
            }
            let one = Table::from_iter([(key.to_owned(), value.clone())]);
            one.try_into::<T>().map(drop).map_err(|error| in_words(error.message()))
        },
    }
}

pub(super) fn all() -> [Section; 17] {
    [
        section::<sections::Server>("server"),
        section::<access::Identity>("identity"),
        section::<access::Tls>("tls"),
        section::<sections::Repository>("repository"),
        section::<sections::Devices>("devices"),
        section::<sections::Lanes>("lanes"),
        section::<sections::Limits>("limits"),
        section::<sections::RateLimits>("rate_limit"),
        section::<sections::Cache>("cache"),
        section::<super::BestEffort>("best_effort"),
        section::<super::Jobs>("jobs"),
        section::<sections::Trace>("trace"),
        section::<super::Telemetry>("telemetry"),
        section::<sections::RequestLogSettings>("request_log"),
        section::<sections::Metrics>("metrics"),
        section::<sections::Partition>("partition"),
        section::<super::Fleet>("fleet"),
    ]
}

/// Tables with a name of the operator's, with an example.
const NAMED: [(&str, &str); 4] = [
    ("models", "[models.resnet50]"),
    ("tenants", "[tenants.search]"),
    ("pipelines", "[pipelines.ocr]"),
    ("families", "[families.digits]"),
];

/// Valid values by section, with their origins.
pub struct Merged {
    sections: BTreeMap<&'static str, Table>,
    models: Table,
    tenants: Table,
    pipelines: Table,
    families: Table,
    origins: BTreeMap<String, Origin>,
    file: Option<PathBuf>,
    lines: Lines,
}

/// Merges all sources, or returns every mistake in them.
pub fn merge(sources: &Sources) -> Result<Merged, Problems> {
    let mut problems = Vec::new();
    let mut merged = Merged {
        sections: BTreeMap::new(),
        models: Table::new(),
        tenants: Table::new(),
        pipelines: Table::new(),
        families: Table::new(),
        origins: BTreeMap::new(),
        file: sources.file.as_ref().map(|(path, _)| path.clone()),
        lines: sources.file.as_ref().map(|(_, text)| Lines::of(text)).unwrap_or_default(),
    };
    let mut file = read_file(sources, &mut problems);
    for (name, example) in NAMED {
        match file.remove(name) {
            None => {}
            Some(Value::Table(tables)) if name == "models" => merged.models = tables,
            Some(Value::Table(tables)) if name == "tenants" => merged.tenants = tables,
            Some(Value::Table(tables)) if name == "families" => merged.families = tables,
            Some(Value::Table(tables)) => merged.pipelines = tables,
            Some(_) => {
                let message = format!("expected tables like {example}");
                problems.push(Problem::new(name, &message, &merged.file_origin(name)));
            }
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
                problems.push(Problem::new(section.name, &message, &merged.file_origin(section.name)));
            }
        }
        for assignment in environment(section, &sources.environment) {
            merged.assign(section, &assignment, &mut values, &mut problems);
        }
        merged.sections.insert(section.name, values);
    }
    unknown_variables(&known, &sources.environment, &mut problems);
    let names: Vec<&str> =
        known.iter().map(|section| section.name).chain(NAMED.map(|(name, _)| name)).collect();
    for name in file.keys() {
        let origin = merged.file_origin(name);
        problems.push(Problem::new(name, &fields::unknown(name, &names, "section"), &origin));
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
            None if name == "tenants" => merged.assign_tenant(flag, &mut problems),
            None if ["pipelines", "families"].contains(&name) => {
                let message = format!("expected {name} in tessera.toml: they cannot be set here");
                problems.push(Problem::new(&flag.path, &message, &flag.origin));
            }
            None => problems.push(Problem::new(
                &flag.path,
                &fields::unknown(name, &names, "section"),
                &flag.origin,
            )),
        }
    }
    models_section::check(&merged.models, |path| merged.origin(path), &mut problems);
    pipelines_section::check(&merged.pipelines, |path| merged.origin(path), &mut problems);
    families_section::check(&merged.families, |path| merged.origin(path), &mut problems);
    let has_slo =
        |tables: &Table, name: &str| tables.get(name).is_some_and(|table| table.get("slo").is_some());
    for (kind, tables) in [("pipelines", &merged.pipelines), ("families", &merged.families)] {
        for name in tables.keys().filter(|name| has_slo(tables, name) && has_slo(&merged.models, name)) {
            let (path, other) = (format!("{kind}.{name}.slo"), format!("models.{name}.slo"));
            let message = format!("set together with {other}: expected one of them");
            problems.push(Problem::new(&path, &message, &merged.origin(&path)));
        }
    }
    for name in merged.families.keys().filter(|name| merged.pipelines.contains_key(*name)) {
        let path = format!("families.{name}");
        let message = "a pipeline has this name: expected another one";
        problems.push(Problem::new(&path, message, &merged.origin(&path)));
    }
    tenants_section::check(&merged.tenants, |path| merged.origin(path), &mut problems);
    if problems.is_empty() { Ok(merged) } else { Err(Problems(problems)) }
}

fn read_file(sources: &Sources, problems: &mut Vec<Problem>) -> Table {
    let Some((path, text)) = &sources.file else { return Table::new() };
    text.parse::<Table>().unwrap_or_else(|error| {
        let line = error.span().map(|span| line_at(text, span.start));
        problems.push(Problem::new("", error.message(), &Origin::File(path.clone(), line)));
        Table::new()
    })
}

/// The environment variable that sets an option.
pub(super) fn variable(section: &str, key: &str) -> String {
    format!("{PREFIX}{section}_{key}").to_ascii_uppercase()
}

fn environment(section: &Section, variables: &[(String, String)]) -> Vec<Assignment> {
    let mut found = Vec::new();
    for key in section.keys {
        let name = variable(section.name, key);
        if let Some((_, raw)) = variables.iter().find(|(variable, _)| *variable == name) {
            let path = format!("{}.{key}", section.name);
            found.push(Assignment { path, raw: raw.clone(), origin: Origin::Environment(name) });
        }
    }
    found
}

/// Reports variables that look like settings but set nothing.
fn unknown_variables(known: &[Section], variables: &[(String, String)], problems: &mut Vec<Problem>) {
    let settings: Vec<String> =
        known.iter().flat_map(|section| section.keys.iter().map(|key| variable(section.name, key))).collect();
    let settings: Vec<&str> = settings.iter().map(|setting| without_prefix(setting)).collect();
    for (name, _) in variables.iter().filter(|(name, _)| name.starts_with(PREFIX) && !is_of_kubernetes(name))
    {
        if settings.contains(&without_prefix(name)) {
            continue;
        }
        let section = |section: &str| name.starts_with(&variable(section, ""));
        let named = NAMED.map(|(named, _)| named).into_iter().find(|named| section(named));
        let message = if let Some(named) = named {
            format!(
                "settings of {named} cannot be set in the environment: expected them in tessera.toml or as \
                 `--set {named}.NAME.KEY=VALUE`"
            )
        } else {
            // The prefix would make every short name similar, such as `TESSERA_DATA` of another program.
            match nearest(without_prefix(name), &settings) {
                Some(near) => format!("unknown variable, did you mean `{PREFIX}{near}`?"),
                None if known.iter().any(|known| section(known.name)) => {
                    "unknown variable: `tessera check --explain SECTION` lists the keys of a section"
                        .to_owned()
                }
                None => continue,
            }
        };
        problems.push(Problem::new(name, &message, &Origin::Environment(name.clone())));
    }
}

fn without_prefix(variable: &str) -> &str {
    variable.strip_prefix(PREFIX).unwrap_or(variable)
}

/// Whether Kubernetes made this variable, for a service whose name starts with `tessera`.
fn is_of_kubernetes(name: &str) -> bool {
    name.ends_with("_PORT")
        || ["_SERVICE_HOST", "_SERVICE_PORT", "_PORT_"].iter().any(|part| name.contains(part))
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
    /// The file, at the line of this key.
    fn file_origin(&self, path: &str) -> Origin {
        let line = self.lines.find(path);
        self.file.clone().map_or(Origin::Default, |file| Origin::File(file, line))
    }

    fn origin(&self, path: &str) -> Origin {
        self.origins.get(path).cloned().unwrap_or_else(|| self.file_origin(path))
    }

    fn take_file(
        &mut self,
        section: &Section,
        given: Table,
        values: &mut Table,
        problems: &mut Vec<Problem>,
    ) {
        for (key, value) in given {
            let path = format!("{}.{key}", section.name);
            let origin = self.file_origin(&path);
            if !section.keys.contains(&key.as_str()) {
                problems.push(Problem::new(&path, &fields::unknown(&key, section.keys, "key"), &origin));
            } else if let Err(message) = (section.check)(&key, &value) {
                problems.push(Problem::new(&path, &message, &origin));
            } else {
                values.insert(key, value);
                self.origins.insert(path, origin);
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
        let inner = models_section::nested_in(name);
        let check = |value: &Value| match inner {
            Some((_, table)) => models_section::check_nested(table, key, value),
            None => models_section::check_key(key, value),
        };
        match read_text(&flag.raw, check) {
            Ok(value) => {
                let empty = || Value::Table(Table::new());
                let model = self.models.entry(inner.map_or(name, |(name, _)| name)).or_insert_with(empty);
                let table = match (inner, model) {
                    (Some((_, table)), Value::Table(model)) => model.entry(table).or_insert_with(empty),
                    (_, model) => model,
                };
                if let Value::Table(table) = table {
                    table.insert(key.to_owned(), value);
                }
                self.origins.insert(flag.path.clone(), flag.origin.clone());
            }
            Err((inner, message)) => {
                problems.push(Problem::new(&format!("{}{inner}", flag.path), &message, &flag.origin));
            }
        }
    }

    /// `--set tenants.NAME.key=value`.
    fn assign_tenant(&mut self, flag: &Assignment, problems: &mut Vec<Problem>) {
        let Some((name, key)) = flag.path.strip_prefix("tenants.").and_then(|rest| rest.rsplit_once('.'))
        else {
            problems.push(Problem::new(&flag.path, "expected tenants.NAME.key=value", &flag.origin));
            return;
        };
        match read_text(&flag.raw, |value| tenants_section::check_key(key, value)) {
            Ok(value) => {
                let tenant = self.tenants.entry(name).or_insert_with(|| Value::Table(Table::new()));
                if let Value::Table(table) = tenant {
                    table.insert(key.to_owned(), value);
                }
                self.origins.insert(flag.path.clone(), flag.origin.clone());
            }
            Err(message) => problems.push(Problem::new(&flag.path, &message, &flag.origin)),
        }
    }

    /// Reads the checked values into their types.
    pub fn into_config(self) -> Result<Config, Problems> {
        let effective = self.effective();
        let Self { mut sections, models, tenants, pipelines, families, .. } = self;
        let families: BTreeMap<String, FamilySettings> =
            Value::Table(families).try_into().map_err(|error| whole("families", &error))?;
        let pipelines: BTreeMap<String, PipelineSettings> =
            Value::Table(pipelines).try_into().map_err(|error| whole("pipelines", &error))?;
        let mut models: BTreeMap<String, ModelSettings> =
            Value::Table(models).try_into().map_err(|error| whole("models", &error))?;
        let of_pipelines = pipelines.iter().map(|(name, pipeline)| (name, pipeline.slo));
        let objectives = of_pipelines.chain(families.iter().map(|(name, family)| (name, family.slo)));
        for (name, slo) in objectives.filter(|(_, slo)| slo.is_some()) {
            models.entry(name.clone()).or_default().slo = slo;
        }
        Ok(Config {
            server: read(&mut sections, "server")?,
            identity: read(&mut sections, "identity")?,
            tls: read(&mut sections, "tls")?,
            repository: read(&mut sections, "repository")?,
            devices: read(&mut sections, "devices")?,
            lanes: read(&mut sections, "lanes")?,
            limits: read(&mut sections, "limits")?,
            rate_limit: read(&mut sections, "rate_limit")?,
            cache: read(&mut sections, "cache")?,
            best_effort: read(&mut sections, "best_effort")?,
            jobs: read(&mut sections, "jobs")?,
            trace: read(&mut sections, "trace")?,
            telemetry: read(&mut sections, "telemetry")?,
            request_log: read(&mut sections, "request_log")?,
            metrics: read(&mut sections, "metrics")?,
            partition: read(&mut sections, "partition")?,
            fleet: read(&mut sections, "fleet")?,
            tenants: Value::Table(tenants).try_into().map_err(|error| whole("tenants", &error))?,
            pipelines,
            families,
            models,
            file: None,
            in_kubernetes: false,
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
        let named = self.pipelines.iter().map(|named| ("pipelines", named));
        let named = named.chain(self.families.iter().map(|named| ("families", named)));
        let named = named.chain(self.tenants.iter().map(|named| ("tenants", named)));
        for (kind, (name, settings)) in named.chain(self.models.iter().map(|named| ("models", named))) {
            for (key, value) in settings.as_table().into_iter().flatten() {
                let path = format!("{kind}.{name}.{key}");
                let origin = self.origin(&path);
                let header = format!("{kind}.{}", quoted(name));
                effective.push(Effective { path, header, value: Some(value.to_string()), origin });
            }
        }
        effective
    }
}

/// A key, quoted for TOML if necessary.
pub(super) fn quoted(key: &str) -> String {
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
