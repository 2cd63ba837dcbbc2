//! Trace settings of the server and of its models, and which request is traced next. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use node::config;
use node::reason::{Reason, Refusal};

/// Models that may have settings of their own.
const MODELS_MAX: usize = 1024;

/// Settings in force for one model, or for all without their own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Values {
    /// Whether level TIMESTAMPS is on.
    pub timestamps: bool,
    /// Every how many requests one is traced.
    pub rate: u32,
    /// Requests left to trace. `None`: no limit.
    pub count: Option<u32>,
    /// Traces in one file. 0: all.
    pub log_frequency: u32,
    /// Name of the file in `trace.dir`. Empty: none.
    pub file: Arc<str>,
}

/// Where a trace is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    /// Name of the file.
    pub file: Arc<str>,
    /// Traces in one file. 0: all.
    pub log_frequency: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Field {
    Level,
    Rate,
    Count,
    LogFrequency,
    File,
}

/// A field and its new value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Level(bool),
    Rate(u32),
    Count(Option<u32>),
    LogFrequency(u32),
    File(Arc<str>),
}

/// A change of one field. `None`: back to the setting that it falls back to.
pub(super) type Change = (Field, Option<Value>);

impl Values {
    fn set(&mut self, value: Value) {
        match value {
            Value::Level(on) => self.timestamps = on,
            Value::Rate(rate) => self.rate = rate,
            Value::Count(count) => self.count = count,
            Value::LogFrequency(frequency) => self.log_frequency = frequency,
            Value::File(file) => self.file = file,
        }
    }

    fn get(&self, field: Field) -> Value {
        match field {
            Field::Level => Value::Level(self.timestamps),
            Field::Rate => Value::Rate(self.rate),
            Field::Count => Value::Count(self.count),
            Field::LogFrequency => Value::LogFrequency(self.log_frequency),
            Field::File => Value::File(Arc::clone(&self.file)),
        }
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.timestamps && self.rate == 0 {
            return Err("Attempting to set invalid trace setting :sample rate must be non-zero");
        }
        if self.timestamps && self.file.is_empty() {
            return Err("Attempting to set invalid trace setting :trace file name is not given");
        }
        Ok(())
    }

    /// The settings as Triton shows them.
    pub fn show(&self) -> BTreeMap<&'static str, Vec<String>> {
        let count = self.count.map_or_else(|| "-1".to_owned(), |count| count.to_string());
        let one = |text: String| vec![text];
        BTreeMap::from([
            (LEVEL, one(if self.timestamps { "TIMESTAMPS" } else { "OFF" }.to_owned())),
            ("trace_rate", one(self.rate.to_string())),
            ("trace_count", one(count)),
            ("log_frequency", one(self.log_frequency.to_string())),
            ("trace_file", one(self.file.to_string())),
            ("trace_mode", one(MODE.to_owned())),
        ])
    }
}

/// The one setting that is a list.
pub const LEVEL: &str = "trace_level";
/// The one mode.
const MODE: &str = "triton";

#[derive(Clone, Debug)]
struct Setting {
    values: Values,
    /// Fields that a model sets itself.
    own: Vec<Field>,
    /// Requests since the last change.
    requests: u32,
}

impl Setting {
    fn new(values: Values) -> Self {
        Self { values, own: Vec::new(), requests: 0 }
    }
}

/// The settings of the server and of models.
#[derive(Clone, Debug)]
pub(super) struct Settings {
    start: Values,
    global: Setting,
    models: BTreeMap<String, Setting>,
}

impl Settings {
    pub fn new(start: Values) -> Self {
        Self { global: Setting::new(start.clone()), start, models: BTreeMap::new() }
    }

    /// Whether a request of any model may be traced.
    pub fn any_on(&self) -> bool {
        let on = |setting: &Setting| setting.values.timestamps && setting.values.count != Some(0);
        on(&self.global) || self.models.values().any(on)
    }

    /// What holds for a model, or for those without their own settings.
    pub fn values(&self, model: Option<&str>) -> &Values {
        let own = model.and_then(|model| self.models.get(model));
        &own.unwrap_or(&self.global).values
    }

    /// Counts a request. Where to write its trace, if it is one to trace.
    pub fn sample(&mut self, model: &str) -> Option<Target> {
        let Setting { values, requests, .. } = self.models.get_mut(model).unwrap_or(&mut self.global);
        if !values.timestamps || values.count == Some(0) {
            return None;
        }
        *requests = requests.wrapping_add(1);
        if !requests.is_multiple_of(values.rate) {
            return None;
        }
        *requests = 0;
        values.count = values.count.map(|count| count.saturating_sub(1));
        Some(Target { file: Arc::clone(&values.file), log_frequency: values.log_frequency })
    }

    /// Changes settings, all or none.
    pub fn change(&mut self, model: Option<&str>, changes: Vec<Change>) -> Result<(), String> {
        let mut next = self.clone();
        match model {
            None => next.change_global(changes),
            Some(model) => next.change_model(model, changes),
        }
        next.global.values.check().map_err(str::to_owned)?;
        for (name, setting) in &next.models {
            let wrong = |reason| format!("{reason} (settings of model `{name}`)");
            setting.values.check().map_err(|reason| {
                if model == Some(name.as_str()) { reason.to_owned() } else { wrong(reason) }
            })?;
        }
        if next.models.len() > MODELS_MAX {
            return Err(format!(
                "{MODELS_MAX} models have trace settings of their own: expected at most that"
            ));
        }
        *self = next;
        Ok(())
    }

    fn change_global(&mut self, changes: Vec<Change>) {
        for (field, value) in changes {
            let value = value.unwrap_or_else(|| self.start.get(field));
            for setting in self.models.values_mut().filter(|setting| !setting.own.contains(&field)) {
                setting.values.set(value.clone());
            }
            self.global.values.set(value);
        }
        self.global.requests = 0;
    }

    fn change_model(&mut self, model: &str, changes: Vec<Change>) {
        let global = &self.global.values;
        let setting =
            self.models.entry(model.to_owned()).or_insert_with(|| Setting::new(self.global.values.clone()));
        for (field, value) in changes {
            setting.own.retain(|own| *own != field);
            if value.is_some() {
                setting.own.push(field);
            }
            setting.values.set(value.unwrap_or_else(|| global.get(field)));
        }
        setting.requests = 0;
        if setting.own.is_empty() {
            self.models.remove(model);
        }
    }
}

/// A value as a client sends it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SentValue {
    /// Clears the setting.
    Clear,
    /// A text.
    One(String),
    /// A list of texts.
    Many(Vec<String>),
    /// Anything else.
    Other,
}

/// Reads a setting. `None`: it names what holds anyway. `writes`: traces may be written.
pub(super) fn read(name: &str, value: SentValue, writes: bool) -> Result<Option<Change>, Refusal> {
    let malformed = |message: String| Refusal::new(Reason::Malformed, message);
    let number = |value: SentValue| match value {
        SentValue::One(text) => Ok(text),
        _ => Err(malformed(format!("{name}: expected one text such as \"1\""))),
    };
    let field = match name {
        LEVEL => Field::Level,
        "trace_rate" => Field::Rate,
        "trace_count" => Field::Count,
        "log_frequency" => Field::LogFrequency,
        "trace_file" => Field::File,
        "trace_mode" => {
            return match value {
                SentValue::Clear => Ok(None),
                SentValue::One(mode) if mode == MODE => Ok(None),
                _ => {
                    let message = "trace_mode: cannot be changed: expected `triton`";
                    Err(Refusal::new(Reason::Unsupported, message))
                }
            };
        }
        _ => {
            let shown: String = name.chars().take(64).collect();
            return Err(malformed(format!(
                "`{shown}`: unknown trace setting: expected trace_level, trace_rate, trace_count, log_frequency, trace_file or trace_mode"
            )));
        }
    };
    if value == SentValue::Clear {
        return Ok(Some((field, None)));
    }
    let value = match field {
        Field::Level => Value::Level(level(value)?),
        Field::Rate => Value::Rate(whole(name, &number(value)?)?),
        Field::LogFrequency => Value::LogFrequency(whole(name, &number(value)?)?),
        Field::Count => {
            let text = number(value)?;
            let count: i64 = text.parse().map_err(|_| unparsable(name, &text))?;
            match u32::try_from(count) {
                Ok(count) => Value::Count(Some(count)),
                Err(_) if count == -1 => Value::Count(None),
                Err(_) if count < 0 => {
                    return Err(malformed(format!(
                        "Unable to parse '{name}'. Expecting value >= -1, got:{count}"
                    )));
                }
                Err(_) => return Err(out_of_range(name, &text)),
            }
        }
        Field::File => Value::File(file(value, writes)?.into()),
    };
    Ok(Some((field, Some(value))))
}

fn level(value: SentValue) -> Result<bool, Refusal> {
    let SentValue::Many(levels) = value else {
        return Err(Refusal::new(Reason::Malformed, "trace_level: expected a list such as [\"TIMESTAMPS\"]"));
    };
    let mut on = false;
    for level in &levels {
        match level.as_str() {
            "OFF" if levels.len() > 1 => {
                let message = "Expect only one trace level 'OFF' is specified";
                return Err(Refusal::new(Reason::Malformed, message));
            }
            "OFF" => {}
            "TIMESTAMPS" => on = true,
            "TENSORS" => {
                let message = "trace_level: TENSORS is not available, because traces contain no data of clients: expected \
                               OFF or TIMESTAMPS";
                return Err(Refusal::new(Reason::Unsupported, message));
            }
            other => {
                let shown: String = other.chars().take(64).collect();
                let message = format!("trace_level: expected OFF or TIMESTAMPS, got `{shown}`");
                return Err(Refusal::new(Reason::Malformed, message));
            }
        }
    }
    Ok(on)
}

fn file(value: SentValue, writes: bool) -> Result<String, Refusal> {
    if !writes {
        let message = "trace_file: no traces may be written: set `trace.dir` in the server's configuration to a folder for them";
        return Err(Refusal::new(Reason::Unsupported, message));
    }
    let SentValue::One(name) = value else {
        return Err(Refusal::new(Reason::Malformed, "trace_file: expected one name"));
    };
    match config::Trace::check_file(&name) {
        Ok(()) => Ok(name),
        Err(reason) => Err(Refusal::new(Reason::Malformed, format!("trace_file: {reason}"))),
    }
}

fn whole(name: &str, text: &str) -> Result<u32, Refusal> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits {
        return Err(unparsable(name, text));
    }
    text.parse().map_err(|_| out_of_range(name, text))
}

fn unparsable(name: &str, text: &str) -> Refusal {
    let shown: String = text.chars().take(64).collect();
    Refusal::new(Reason::Malformed, format!("Unable to parse '{name}', got: {shown}"))
}

fn out_of_range(name: &str, text: &str) -> Refusal {
    let shown: String = text.chars().take(64).collect();
    let range = format!("[ 0, {} ]", u32::MAX);
    Refusal::new(
        Reason::Malformed,
        format!("Unable to parse '{name}', value is out of range {range}, got: {shown}"),
    )
}
