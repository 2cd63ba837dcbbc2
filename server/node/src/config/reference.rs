//! The reference of all settings: what each means, accepts and defaults to.
//!
//! Meanings are the doc comments of the fields, and accepted values are what the parser says that it expects. A doc comment
//! ends with `Default: ...` if the code has no fixed default, and with an `Example: ...` in TOML if the default does not show
//! what a value looks like.

use documented::DocumentedFields;
use models::{BatchingSettings, ModelSettings, OrtTable, RolloutSettings};
use serde::Serialize;
use serde::de::DeserializeOwned;
use toml::{Table, Value};
use units::nearest;

use super::merge;
use super::{
    ConfigArgs, Emulated, FamilySettings, FleetNode, PipelineSettings, TenantSettings, families_section,
    fields, models_section, pipelines_section, tenants_section,
};

/// When a changed value has an effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum TakesEffect {
    /// When the server gets SIGHUP. Settings of a model also when it is loaded again with `tessera models load`.
    Reload,
    /// When the server is started again.
    Restart,
}

impl TakesEffect {
    /// As the reference says it.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Reload => "at reload",
            Self::Restart => "at start",
        }
    }
}

/// One setting.
#[derive(Clone, Debug, Serialize)]
pub struct Setting {
    /// Header of its table: `limits`, `models.NAME`.
    pub section: String,
    /// Key in that table.
    pub key: String,
    /// What it does.
    pub meaning: String,
    /// Values that it accepts.
    pub accepts: String,
    /// Value if it is not set: TOML in backticks, or a sentence.
    pub default: String,
    /// A value as TOML.
    pub example: String,
    /// When a change has an effect.
    pub takes_effect: TakesEffect,
    /// Environment variable that sets it.
    pub environment: Option<String>,
    /// Flag of its own; `--set` sets every option.
    pub flag: Option<&'static str>,
}

/// The settings of one table.
#[derive(Clone, Debug)]
pub struct Section {
    /// Header: `limits`, `models.NAME`.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Its settings in order.
    pub settings: Vec<Setting>,
}

impl Setting {
    /// `section.key`.
    pub fn path(&self) -> String {
        format!("{}.{}", self.section, self.key)
    }

    /// The setting as text for a terminal.
    pub fn explain(&self) -> String {
        let mut text = format!("{}\n  {}\n\n", self.path(), self.meaning);
        let mut line = |label: &str, value: &str| text.push_str(&format!("  {label:<13}{value}\n"));
        line("accepts", &self.accepts);
        line("default", &self.default);
        line("takes effect", self.takes_effect.in_words());
        if let Some(name) = &self.environment {
            line("environment", name);
        }
        if let Some(flag) = self.flag {
            line("flag", flag);
        }
        line("example", &format!("{} = {}", self.key, self.example));
        line("", &format!("in [{}] of tessera.toml", self.section));
        text
    }
}

/// Every section in order.
pub fn sections() -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    let flags = ConfigArgs::default().named().map(|(flag, path, _)| (flag, path));
    for section in merge::all() {
        let settings = section.keys.iter().map(|key| {
            let path = format!("{}.{key}", section.name);
            let docs = Docs::of((section.docs)(key));
            let default = section.defaults.get(*key);
            Setting {
                environment: Some(merge::variable(section.name, key)),
                flag: flags.iter().find(|(_, set)| *set == path).map(|(flag, _)| *flag),
                ..setting(section.name, key, &docs, default, &|value| (section.check)(key, value))
            }
        });
        sections.push(Section {
            name: section.name.to_owned(),
            about: about(section.about),
            settings: settings.collect(),
        });
        if section.name == "devices" {
            sections.push(entries::<Emulated>("devices.emulated", EMULATED));
        }
        if section.name == "fleet" {
            sections.push(entries::<FleetNode>("fleet.nodes", NODE));
        }
    }
    sections.push(tenants());
    sections.push(pipelines());
    sections.push(families());
    sections.extend(models());
    sections
}

/// Keys that every entry of `devices.emulated` needs.
const EMULATED: &str = "kind = \"v100\"\nmemory = \"1GiB\"";
/// Keys that every entry of `fleet.nodes` needs.
const NODE: &str = "name = \"b\"\nhttp = \"b:8000\"\ngrpc = \"b:8001\"";

/// The settings of the entries of a list. `required`: an entry with the keys that each needs.
fn entries<T: DeserializeOwned + DocumentedFields>(list: &str, required: &str) -> Section {
    let name = format!("{list}[]");
    let settings = fields::of::<T>().iter().map(|key| {
        let docs = Docs::of(T::get_field_docs(key).unwrap_or_default());
        let check = |value: &Value| {
            let mut whole: Table = toml::from_str(required).unwrap_or_default();
            whole.insert((*key).to_owned(), value.clone());
            whole.try_into::<T>().map(drop).map_err(|error| units::in_words(error.message()))
        };
        setting(&name, key, &docs, None, &check)
    });
    let settings = settings.collect();
    Section { about: format!("Each entry of the list `{list}`."), name, settings }
}

fn tenants() -> Section {
    let settings = fields::of::<TenantSettings>().iter().map(|key| {
        let docs = Docs::of(TenantSettings::get_field_docs(key).unwrap_or_default());
        setting("tenants.NAME", key, &docs, None, &|value| tenants_section::check_key(key, value))
    });
    Section {
        name: "tenants.NAME".to_owned(),
        about: "One table for each tenant: its share under contention, and what it may use at most."
            .to_owned(),
        settings: settings.collect(),
    }
}

fn pipelines() -> Section {
    let settings = fields::of::<PipelineSettings>().iter().map(|key| {
        let docs = Docs::of(PipelineSettings::get_field_docs(key).unwrap_or_default());
        setting("pipelines.NAME", key, &docs, None, &|value| pipelines_section::check_key(key, value))
    });
    Section {
        name: "pipelines.NAME".to_owned(),
        about: "One table for each pipeline: models that run as the stages of one.".to_owned(),
        settings: settings.collect(),
    }
}

fn families() -> Section {
    let settings = fields::of::<FamilySettings>().iter().map(|key| {
        let docs = Docs::of(FamilySettings::get_field_docs(key).unwrap_or_default());
        setting("families.NAME", key, &docs, None, &|value| families_section::check_key(key, value))
    });
    Section {
        name: "families.NAME".to_owned(),
        about: "One table for each family: models that answer the same requests with different quality."
            .to_owned(),
        settings: settings.collect(),
    }
}

fn models() -> [Section; 4] {
    let nested = models_section::nested().map(|(table, _)| table);
    let own = fields::of::<ModelSettings>().iter().filter(|key| !nested.contains(*key)).map(|key| {
        let docs = Docs::of(ModelSettings::get_field_docs(key).unwrap_or_default());
        let check = |value: &Value| models_section::check_key(key, value).map_err(|(_, message)| message);
        setting("models.NAME", key, &docs, None, &check)
    });
    [
        Section {
            name: "models.NAME".to_owned(),
            about: "One table for each model. What is set here wins over `config.pbtxt`.".to_owned(),
            settings: own.collect(),
        },
        nested_in_models::<BatchingSettings>(
            "batching",
            "How requests of a model are gathered into batches.",
        ),
        nested_in_models::<OrtTable>(
            "ort",
            "How sessions of ONNX Runtime run a model. Any of these settings means that no other engine runs it. A reload applies a change.",
        ),
        nested_in_models::<RolloutSettings>(
            "rollout",
            "How a new version replaces the one that serves. Without this table, or with `versions` of an earlier one, at once.",
        ),
    ]
}

fn nested_in_models<T: DocumentedFields + DeserializeOwned>(table: &str, about: &str) -> Section {
    let section = format!("models.NAME.{table}");
    let settings = fields::of::<T>().iter().map(|key| {
        let docs = Docs::of(T::get_field_docs(key).unwrap_or_default());
        let check =
            |value: &Value| models_section::check_nested(table, key, value).map_err(|(_, message)| message);
        setting(&section, key, &docs, None, &check)
    });
    Section { settings: settings.collect(), about: about.to_owned(), name: section.clone() }
}

fn setting(
    section: &str,
    key: &'static str,
    docs: &Docs,
    default: Option<&Value>,
    check: &dyn Fn(&Value) -> Result<(), String>,
) -> Setting {
    let set = default.map(Value::to_string);
    // An empty list shows nothing about its entries.
    let shows = |text: &&String| text.as_str() != "[]";
    Setting {
        section: section.to_owned(),
        key: key.to_owned(),
        meaning: docs.meaning.clone(),
        accepts: accepts(check),
        default: docs.default.clone().or(set.as_ref().map(|text| format!("`{text}`"))).unwrap_or_default(),
        example: docs.example.clone().or(set.as_ref().filter(shows).cloned()).unwrap_or_default(),
        takes_effect: if is_live(&format!("{section}.{key}")) {
            TakesEffect::Reload
        } else {
            TakesEffect::Restart
        },
        environment: None,
        flag: None,
    }
}

/// The parts of a doc comment.
struct Docs {
    meaning: String,
    default: Option<String>,
    example: Option<String>,
}

impl Docs {
    fn of(text: &str) -> Self {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let (text, example) = match text.rsplit_once(" Example: `") {
            Some((before, example)) => {
                (before.to_owned(), Some(example.trim_end_matches(['.', '`']).to_owned()))
            }
            None => (text, None),
        };
        let (meaning, default) = match text.split_once(" Default: ") {
            Some((meaning, default)) => (meaning.to_owned(), Some(default.trim_end_matches('.').to_owned())),
            None => (text, None),
        };
        Self { meaning, default, example }
    }
}

/// What a section's doc comment says after its name.
fn about(docs: &str) -> String {
    let text = docs.split_whitespace().collect::<Vec<_>>().join(" ");
    let text = text.split_once("]`: ").map_or(text.as_str(), |(_, about)| about);
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

/// What the parser says that it expects, found by offering it values of other types.
fn accepts(check: &dyn Fn(&Value) -> Result<(), String>) -> String {
    let expected = |value: Value| {
        let message = check(&value).err()?;
        let (_, expected) = message.split_once("expected ")?;
        Some(expected.rsplit_once(", got ").map_or(expected, |(expected, _)| expected).to_owned())
    };
    let expected_of = |wrap: &dyn Fn(Value) -> Value| {
        let texts = [Value::from("?"), Value::from(true), Value::from(1)];
        texts.into_iter().find_map(|value| expected(wrap(value)))
    };
    match expected_of(&|value| value) {
        Some(list) if list == "a list" => {
            let entry = expected_of(&|value| Value::Array(vec![value]));
            entry.map_or(list, |entry| format!("a list; each entry: {entry}"))
        }
        Some(found) => found,
        None => String::new(),
    }
}

/// Whether a reload takes up a change of this setting.
pub fn is_live(path: &str) -> bool {
    let of_several = path.starts_with("pipelines.") || path.starts_with("families.");
    let is_objective = of_several && path.ends_with(".slo");
    path.starts_with("models.") || path.starts_with("tenants.") || is_objective || path == "server.log_level"
}

/// Settings that a query names: a path, the path of a model's key, a key or a section.
///
/// # Errors
/// That no setting has this name, with the nearest one.
pub fn find(query: &str) -> Result<Vec<Setting>, String> {
    let every: Vec<Setting> = sections().into_iter().flat_map(|section| section.settings).collect();
    let query = query.trim().trim_matches(['[', ']']);
    let general = general_path(query);
    let matching: [&dyn Fn(&Setting) -> bool; 4] = [
        &|setting| setting.path() == general,
        &|setting| setting.key == query,
        &|setting| setting.section == general,
        &|setting| setting.environment.as_deref() == Some(query) || setting.flag == Some(query),
    ];
    for matches in matching {
        let found: Vec<Setting> = every.iter().filter(|setting| matches(setting)).cloned().collect();
        if !found.is_empty() {
            return Ok(found);
        }
    }
    let paths: Vec<String> = every.iter().map(Setting::path).collect();
    let words: Vec<&str> =
        paths.iter().map(String::as_str).chain(every.iter().map(|setting| setting.key.as_str())).collect();
    let hint = match nearest(&general, &words) {
        Some(near) => format!(", did you mean `{near}`?"),
        None => ": expected a key such as `limits.body`, or a section such as `limits`".to_owned(),
    };
    Err(format!("`{query}`: unknown setting{hint}"))
}

/// `models.resnet50.slo` as `models.NAME.slo`, and `devices.emulated[0].kind` as `devices.emulated[].kind`.
fn general_path(query: &str) -> String {
    if let Some(rest) = query.strip_prefix("models.") {
        let nested = models_section::nested().map(|(table, _)| format!(".{table}."));
        let inner = nested.iter().find_map(|key| rest.rfind(key)).or_else(|| rest.rfind('.'));
        let whole = models_section::nested_in(rest).map(|(name, _)| name.len());
        let known = whole.or(inner).unwrap_or(rest.len());
        return format!("models.NAME{}", rest.get(known..).unwrap_or_default());
    }
    if let Some((_, key)) = query.strip_prefix("tenants.").and_then(|rest| rest.rsplit_once('.')) {
        return format!("tenants.NAME.{key}");
    }
    for kind in ["pipelines", "families"] {
        let rest = query.strip_prefix(kind).and_then(|rest| rest.strip_prefix('.'));
        if let Some((_, key)) = rest.and_then(|rest| rest.rsplit_once('.')) {
            return format!("{kind}.NAME.{key}");
        }
    }
    let entry = ["devices.emulated", "fleet.nodes"].into_iter().find_map(|list| {
        let (_, rest) = query.strip_prefix(list)?.split_once(']')?;
        Some(format!("{list}[]{rest}"))
    });
    entry.unwrap_or_else(|| query.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Sources};

    fn every() -> Vec<Setting> {
        sections().into_iter().flat_map(|section| section.settings).collect()
    }

    #[test]
    fn every_setting_says_what_it_means_accepts_and_defaults_to_and_has_an_example() {
        for setting in every() {
            let path = setting.path();
            assert!(setting.meaning.ends_with('.'), "{path}: write a doc comment: `{}`", setting.meaning);
            assert!(!setting.accepts.is_empty(), "{path}: the parser's message does not say what it expects");
            assert!(!setting.default.is_empty(), "{path}: end its doc comment with `Default: ...`");
            assert!(!setting.example.is_empty(), "{path}: end its doc comment with `Example: ...`");
        }
    }

    #[test]
    fn every_example_is_accepted() {
        for setting in every() {
            let (path, example) = (setting.path(), &setting.example);
            let text = match setting.section.strip_suffix("[]") {
                Some(list) => {
                    let (section, list) = list.split_once('.').unwrap();
                    let required = if list == "nodes" { NODE } else { EMULATED }.parse::<Table>().unwrap();
                    let rest = required.iter().filter(|(key, _)| **key != setting.key);
                    let rest: String = rest.map(|(key, value)| format!(", {key} = {value}")).collect();
                    format!("[{section}]\n{list} = [{{ {} = {example}{rest} }}]", setting.key)
                }
                None => format!("[{}]\n{} = {example}", setting.section, setting.key),
            };
            let sources = Sources { file: Some(("tessera.toml".into(), text.clone())), ..Sources::default() };
            let problems = Config::load(&sources).err().unwrap_or_default().0;
            // Folders and files of the examples do not exist here, and neither do the options that some depend on.
            let missing = |message: &str| {
                message.contains("is not a folder")
                    || message.starts_with("no file")
                    || message.starts_with("has no effect without")
            };
            let own =
                problems.iter().find(|problem| problem.path.starts_with(&path) && !missing(&problem.message));
            assert_eq!(own, None, "{text}");
        }
    }

    #[test]
    fn settings_are_found_by_path_key_section_variable_and_flag() {
        let paths =
            |query: &str| find(query).map(|found| found.iter().map(Setting::path).collect::<Vec<_>>());
        assert_eq!(paths("limits.body").unwrap(), ["limits.body"]);
        assert_eq!(paths("models.resnet50.slo").unwrap(), ["models.NAME.slo"]);
        assert_eq!(paths("models.a.b.batching.policy").unwrap(), ["models.NAME.batching.policy"]);
        assert_eq!(paths("models.m.batching").unwrap().len(), 4);
        assert_eq!(paths("devices.emulated[2].kind").unwrap(), ["devices.emulated[].kind"]);
        assert_eq!(paths("fleet.nodes[0].http").unwrap(), ["fleet.nodes[].http"]);
        assert_eq!(paths("tenants.a.b.weight").unwrap(), ["tenants.NAME.weight"]);
        assert_eq!(paths("slo").unwrap(), ["pipelines.NAME.slo", "families.NAME.slo", "models.NAME.slo"]);
        assert_eq!(paths("TESSERA_SERVER_HTTP").unwrap(), ["server.http"]);
        assert_eq!(paths("--lanes").unwrap(), ["lanes.count"]);
        assert!(paths("[limits]").unwrap().len() > 10);
        assert_eq!(
            paths("limits.bdy").unwrap_err(),
            "`limits.bdy`: unknown setting, did you mean `limits.body`?"
        );
        assert!(paths("colour").unwrap_err().contains("expected a key such as"));
    }
}
