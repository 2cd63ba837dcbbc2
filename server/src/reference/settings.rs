//! Settings of `tessera.toml`, the environment and flags.

use node::config::reference::{Section, Setting, sections};

use super::{code, table};

const INTRODUCTION: &str = "\
# Settings

Every setting can come from four sources. A flag wins over the environment, the environment over the file, and the file over the
default.

| source | example for `limits.body` |
|---|---|
| flag | `--set limits.body=16MiB`; some settings also have a flag of their own, named below |
| environment | `TESSERA_LIMITS_BODY=16MiB`: `TESSERA_`, the section and the key in capitals; not for `[models]` |
| file | `body = \"16MiB\"` in the section `[limits]` of `tessera.toml`, which `--config` names or the repository holds |

`tessera serve --print-config` prints the values in effect and the source of each. `tessera check` finds mistakes in all sources.
`tessera check --explain limits.body` prints an entry of this page.

Durations have a unit (`250us`, `50ms`, `1.5s`, `2m`, `1h`), and so have sizes (`512B`, `16KiB`, `64MiB`, `1GiB`).
";

pub fn page() -> String {
    let sections = sections();
    let mut text = INTRODUCTION.to_owned();
    for section in &sections {
        text.push_str(&one(section));
    }
    text
}

fn one(section: &Section) -> String {
    let rows = section.settings.iter().map(|setting| {
        let Setting { key, meaning, accepts, default, takes_effect, flag, .. } = setting;
        let flag = flag.map(|flag| format!(" Flag: `{flag}`.")).unwrap_or_default();
        [
            code(key),
            format!("{meaning}{flag}"),
            accepts.clone(),
            default.clone(),
            takes_effect.in_words().to_owned(),
        ]
    });
    let rows = table(["key", "meaning", "accepts", "default", "takes effect"], rows);
    format!("\n## `[{}]`\n\n{}\n\n{rows}\n{}", section.name, section.about, example(section))
}

/// Every key with a value, as it would be in the file.
fn example(section: &Section) -> String {
    let entry = |setting: &Setting| format!("{} = {}", setting.key, setting.example);
    if let Some((parent, list)) = section.name.strip_suffix("[]").and_then(|name| name.split_once('.')) {
        let entries: Vec<String> = section.settings.iter().map(entry).collect();
        return format!("```toml\n[{parent}]\n{list} = [{{ {} }}]\n```\n", entries.join(", "));
    }
    let entries: String = section.settings.iter().map(|setting| entry(setting) + "\n").collect();
    format!("```toml\n[{}]\n{entries}```\n", section.name)
}
