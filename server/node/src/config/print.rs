//! The effective configuration as a `tessera.toml`, with comments that say what each key means and where its value came from.

use super::reference::{Section, Setting, sections};
use super::{Config, Effective};

/// Widest comment.
const WIDTH: usize = 118;
/// Headers that stand for every tenant and every model in the reference.
const ANY: [&str; 4] = ["tenants.NAME", "pipelines.NAME", "families.NAME", "models.NAME"];

impl Config {
    /// The effective configuration as a `tessera.toml`. Keys that are not set are comments with an example.
    pub fn print(&self) -> String {
        let mut text = String::new();
        let known = sections();
        let of_any = |section: &&Section| ANY.iter().any(|any| section.name.starts_with(any));
        // Entries of lists are shown with their lists.
        for section in known.iter().filter(|section| !of_any(section) && !section.name.ends_with("[]")) {
            let values = self.effective.iter().filter(|value| value.header == section.name);
            table(&mut text, "", &section.name, &section.settings, &values.collect::<Vec<_>>());
        }
        for any in ANY {
            let theirs = known.iter().filter(|section| section.name.starts_with(any));
            let settings: Vec<Setting> =
                theirs.flat_map(|section| section.settings.iter().map(|one| in_table(any, one))).collect();
            let mut headers: Vec<&str> = self.effective.iter().map(|value| value.header.as_str()).collect();
            headers.retain(|header| header.starts_with(any.trim_end_matches("NAME")));
            headers.dedup();
            for header in &headers {
                let values: Vec<_> = self.effective.iter().filter(|value| value.header == *header).collect();
                table(&mut text, "", header, &settings, &values);
            }
            if headers.is_empty() {
                table(&mut text, "# ", any, &settings, &[]);
            }
        }
        text
    }
}

/// A setting of a tenant or a model with its key as it is written in its own table.
fn in_table(any: &str, setting: &Setting) -> Setting {
    let inner = setting.section.strip_prefix(any).unwrap_or_default().trim_start_matches('.');
    let key = if inner.is_empty() { setting.key.clone() } else { format!("{inner}.{}", setting.key) };
    Setting { key, ..setting.clone() }
}

fn table(text: &mut String, prefix: &str, header: &str, settings: &[Setting], values: &[&Effective]) {
    let gap = if text.is_empty() { "" } else { "\n" };
    text.push_str(&format!("{gap}{prefix}[{header}]\n"));
    let value_of = |key: &str| values.iter().find(|value| is_of(value, key));
    // A table as value holds the keys inside it.
    let inside = |setting: &Setting| setting.key.split_once('.').and_then(|(outer, _)| value_of(outer));
    for setting in settings {
        let set =
            value_of(&setting.key).and_then(|effective| Some((effective.value.as_ref()?, &effective.origin)));
        comment(text, &setting.meaning);
        let Setting { key, example, default, .. } = setting;
        text.push_str(&match (set, inside(setting)) {
            (Some((value, origin)), _) => format!("{key} = {value}  # {origin}\n"),
            (None, Some(_)) => format!("# {key}: see below\n"),
            (None, None) => format!("# {key} = {example}  # not set; default: {default}\n"),
        });
    }
    for value in values.iter().filter(|value| settings.iter().all(|setting| !is_of(value, &setting.key))) {
        let key = value.path.rsplit_once('.').map_or(value.path.as_str(), |(_, key)| key);
        text.push_str(&format!(
            "{key} = {}  # {}\n",
            value.value.as_deref().unwrap_or_default(),
            value.origin
        ));
    }
}

fn is_of(value: &Effective, key: &str) -> bool {
    value.path.strip_suffix(key).is_some_and(|rest| rest.ends_with('.'))
}

/// Adds a comment, broken into lines.
fn comment(text: &mut String, meaning: &str) {
    text.push('#');
    let mut width = 1;
    for word in meaning.split(' ') {
        if width + 1 + word.chars().count() > WIDTH {
            text.push_str("\n#");
            width = 1;
        }
        text.push(' ');
        text.push_str(word);
        width += 1 + word.chars().count();
    }
    text.push('\n');
}
