//! `[models.NAME]`: tables whose keys the `models` crate defines.

use models::{BatchingSettings, ModelSettings};
use toml::{Table, Value};
use units::in_words;

use super::{Origin, Problem, fields};

/// The one nested table.
pub const BATCHING: &str = "batching";

/// Reports every mistake in every model's table.
pub fn check(models: &Table, origin: impl Fn(&str) -> Origin, problems: &mut Vec<Problem>) {
    for (name, settings) in models {
        let Value::Table(settings) = settings else {
            let path = format!("models.{name}");
            problems.push(Problem::new(&path, "expected a table like [models.resnet50]", &origin(&path)));
            continue;
        };
        for (key, value) in settings {
            if let Err((inner, message)) = check_key(key, value) {
                let path = format!("models.{name}.{key}{inner}");
                problems.push(Problem::new(&path, &message, &origin(&path)));
            }
        }
    }
}

/// As [`check_key`], for a key of the nested table.
pub fn check_batching(key: &str, value: &Value) -> Result<(), (String, String)> {
    let table = Value::Table(Table::from_iter([(key.to_owned(), value.clone())]));
    check_key(BATCHING, &table).map_err(|(_, message)| (String::new(), message))
}

/// Whether a model may have this key with this value; else where inside the value the mistake is (`.max_delay`,
/// or nothing), and what it is.
pub fn check_key(key: &str, value: &Value) -> Result<(), (String, String)> {
    let known = fields::of::<ModelSettings>();
    if !known.contains(&key) {
        return Err((String::new(), fields::unknown(key, known, "key")));
    }
    if let (BATCHING, Value::Array(_)) = (key, value) {
        // Serde would read a list as the values of the keys in order.
        return Err((String::new(), "expected a table, got a list".to_owned()));
    }
    if let (BATCHING, Value::Table(batching)) = (key, value) {
        let known = fields::of::<BatchingSettings>();
        if let Some(inner) = batching.keys().find(|inner| !known.contains(&inner.as_str())) {
            return Err((format!(".{inner}"), fields::unknown(inner, known, "key")));
        }
    }
    let one = Table::from_iter([(key.to_owned(), value.clone())]);
    match serde_path_to_error::deserialize::<_, ModelSettings>(Value::Table(one)) {
        Ok(_) => Ok(()),
        Err(error) => {
            let path = error.path().to_string();
            let inner = path.strip_prefix(key).unwrap_or_default().to_owned();
            Err((inner, in_words(error.inner().message())))
        }
    }
}
