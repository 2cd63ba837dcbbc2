//! `[models.NAME]`: tables whose keys the `models` crate defines.

use models::{BatchingSettings, ModelSettings, OrtTable, RolloutSettings};
use toml::{Table, Value};
use units::in_words;

use super::{Origin, Problem, fields};

/// Nested tables with their keys.
pub fn nested() -> [(&'static str, &'static [&'static str]); 3] {
    [
        ("batching", fields::of::<BatchingSettings>()),
        ("ort", fields::of::<OrtTable>()),
        ("rollout", fields::of::<RolloutSettings>()),
    ]
}

/// The nested table that a path such as `NAME.batching` ends with, and the path before it.
pub fn nested_in(path: &str) -> Option<(&str, &'static str)> {
    let of = |table: &'static str| Some((path.strip_suffix(table)?.strip_suffix('.')?, table));
    nested().into_iter().find_map(|(table, _)| of(table))
}

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

/// As [`check_key`], for a key of a nested table.
pub fn check_nested(table: &str, key: &str, value: &Value) -> Result<(), (String, String)> {
    let inner = Value::Table(Table::from_iter([(key.to_owned(), value.clone())]));
    check_key(table, &inner).map_err(|(_, message)| (String::new(), message))
}

/// Whether a model may have this key with this value; else where inside the value the mistake is (`.max_delay`,
/// or nothing), and what it is.
pub fn check_key(key: &str, value: &Value) -> Result<(), (String, String)> {
    let known = fields::of::<ModelSettings>();
    if !known.contains(&key) {
        return Err((String::new(), fields::unknown(key, known, "key")));
    }
    let keys = nested().into_iter().find(|(table, _)| *table == key).map(|(_, keys)| keys);
    match (keys, value) {
        // Serde would read a list as the values of the keys in order.
        (Some(_), Value::Array(_)) => return Err((String::new(), "expected a table, got a list".to_owned())),
        (Some(keys), Value::Table(inner)) => {
            if let Some(unknown) = inner.keys().find(|inner| !keys.contains(&inner.as_str())) {
                return Err((format!(".{unknown}"), fields::unknown(unknown, keys, "key")));
            }
        }
        _ => {}
    }
    let one = Table::from_iter([(key.to_owned(), value.clone())]);
    match serde_path_to_error::deserialize::<_, ModelSettings>(Value::Table(one)) {
        Ok(settings) => match settings.rollout.and_then(|rollout| rollout.mistake()) {
            Some((inner, expected)) => Err((format!(".{inner}"), expected.to_owned())),
            None => Ok(()),
        },
        Err(error) => {
            let path = error.path().to_string();
            let inner = path.strip_prefix(key).unwrap_or_default().to_owned();
            Err((inner, in_words(error.inner().message())))
        }
    }
}
