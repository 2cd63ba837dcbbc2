//! From the path of a key to its line in the text.
//!
//! Values are checked long after they were parsed, by path; this finds the place again, so that no type in
//! between has to carry positions.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

/// Keys by path (`models.resnet.slo`, `lanes.failures[1].from`) with their lines.
#[derive(Debug, Default)]
pub struct Lines(BTreeMap<String, u32>);

/// Line of a byte of the text, from 1.
pub fn line_at(text: &str, byte: usize) -> u32 {
    let breaks = text.bytes().take(byte).filter(|&byte| byte == b'\n').count();
    u32::try_from(breaks).unwrap_or(u32::MAX).saturating_add(1)
}

impl Lines {
    /// Finds the line of each key of a document. Text that is not TOML has no keys.
    pub fn of(text: &str) -> Self {
        let mut places = Vec::new();
        if let Ok(table) = DeTable::parse(text) {
            walk_table("", table.get_ref(), &mut places);
        }
        places.sort_by_key(|(_, byte)| *byte);
        let (mut line, mut seen) = (1, 0);
        let mut lines = BTreeMap::new();
        for (path, byte) in places {
            let passed = text.as_bytes().get(seen..byte).unwrap_or_default();
            line += u32::try_from(passed.iter().filter(|&&byte| byte == b'\n').count()).unwrap_or(0);
            seen = seen.max(byte);
            lines.insert(path, line);
        }
        Self(lines)
    }

    /// Names of the keys directly in a table.
    pub fn keys_in<'a>(&'a self, table: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = format!("{table}.");
        let keys = self.0.range(prefix.clone()..).map_while(move |(path, _)| path.strip_prefix(&prefix));
        keys.filter(|key| !key.contains(['.', '[']))
    }

    /// Line of the key, or of the nearest table around it.
    pub fn find(&self, path: &str) -> Option<u32> {
        let mut rest = path;
        loop {
            if let Some(line) = self.0.get(rest) {
                return Some(*line);
            }
            rest = rest.get(..rest.rfind(['.', '['])?)?;
        }
    }
}

fn walk_table(path: &str, table: &DeTable<'_>, places: &mut Vec<(String, usize)>) {
    for (key, value) in table {
        let name = key.get_ref();
        let path = if path.is_empty() { name.to_string() } else { format!("{path}.{name}") };
        places.push((path.clone(), key.span().start));
        walk_value(&path, value.get_ref(), places);
    }
}

fn walk_value(path: &str, value: &DeValue<'_>, places: &mut Vec<(String, usize)>) {
    match value {
        DeValue::Table(table) => walk_table(path, table, places),
        DeValue::Array(values) => {
            for (position, value) in values.iter().enumerate() {
                let path = format!("{path}[{position}]");
                places.push((path.clone(), value.span().start));
                walk_value(&path, value.get_ref(), places);
            }
        }
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_found_by_path_and_missing_ones_by_what_is_around_them() {
        let lines = Lines::of(
            "name = \"x\"\n\n[models.a]\nslo = \"1s\"\nrows = [\n [1, 0.5],\n [2, 0.5]]\n[[lanes.failures]]\nlane = 1\n[models.\"b.c\"]\nslo = \"2s\"\n",
        );
        let cases = [
            ("name", 1),
            ("models.a", 3),
            ("models.a.slo", 4),
            ("models.a.profile", 3),
            ("models.a.rows[1]", 7),
            ("lanes.failures[0].lane", 9),
            ("lanes.failures[0].until", 8),
            ("models.b.c.slo", 11),
        ];
        for (path, line) in cases {
            assert_eq!(lines.find(path), Some(line), "{path}");
        }
        assert_eq!(lines.find("duration"), None);
    }
}
