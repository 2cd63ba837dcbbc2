//! `tessera config`: shows, compares and reloads the configuration of a running server, over its REST interface.

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::Method;
use node::output;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::arguments::{ConfigAction, ConfigCommandArgs};
use crate::rest::{self, Server};

/// Timeout of a call: a reload loads models.
const TIMEOUT: Duration = Duration::from_secs(600);
const PATH: &str = "/v2/config";
const DRY_RUN: &str = "/v2/config?dry_run=true";

/// What `GET /v2/config` answers.
#[derive(Deserialize)]
struct View {
    file: Option<String>,
    settings: Vec<Setting>,
    pending: Vec<Change>,
    last_reload: Option<LastReload>,
}

#[derive(Deserialize)]
struct Setting {
    setting: String,
    value: Value,
    origin: String,
    takes_effect: String,
}

#[derive(Deserialize)]
struct LastReload {
    at: String,
    successful: bool,
    problem: Option<String>,
}

/// What `POST /v2/config` answers. A dry run says nothing about models.
#[derive(Deserialize)]
struct Report {
    changes: Vec<Change>,
    pending: Vec<Change>,
    #[serde(default)]
    models: BTreeMap<String, Loaded>,
    #[serde(default)]
    not_loaded: BTreeMap<String, String>,
}

#[derive(Deserialize)]
struct Change {
    setting: String,
    old: Value,
    new: Value,
}

#[derive(Deserialize)]
struct Loaded {
    loaded: Vec<u64>,
    unloaded: Vec<u64>,
}

/// Calls the server and prints its response.
pub fn run(arguments: &ConfigCommandArgs) -> anyhow::Result<ExitCode> {
    let sent = match &arguments.action {
        ConfigAction::Diff { file: Some(file) } => {
            let text = std::fs::read(file).with_context(|| format!("cannot read `{}`", file.display()))?;
            // The server would take an empty body for none.
            ensure!(!text.is_empty(), "`{}` is empty: expected a configuration file", file.display());
            text.into()
        }
        _ => Bytes::new(),
    };
    rest::wait_for(TIMEOUT, ask(arguments, sent))
}

async fn ask(arguments: &ConfigCommandArgs, sent: Bytes) -> anyhow::Result<ExitCode> {
    let server = arguments.server.server()?;
    let (method, path) = match &arguments.action {
        ConfigAction::Show { .. } => (Method::GET, PATH),
        ConfigAction::Diff { .. } => (Method::POST, DRY_RUN),
        ConfigAction::Reload => (Method::POST, PATH),
    };
    let answer = server.send(method, path, sent).await?;
    let text = match &arguments.action {
        _ if arguments.json => format!("{}\n", String::from_utf8_lossy(&answer).trim_end()),
        ConfigAction::Show { key, all } => shown(read(&server, &answer)?, key.as_deref(), *all)?,
        ConfigAction::Diff { .. } => differences(&read(&server, &answer)?),
        ConfigAction::Reload => reloaded(&read(&server, &answer)?),
    };
    output::write(text.as_bytes());
    Ok(ExitCode::SUCCESS)
}

fn read<T: DeserializeOwned>(server: &Server, answer: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(answer)
        .with_context(|| format!("{} did not answer as a Tessera of this version does", server.authority))
}

fn shown(view: View, key: Option<&str>, all: bool) -> anyhow::Result<String> {
    let wanted = |setting: &Setting| {
        let rest = key.map_or(Some("."), |key| setting.setting.strip_prefix(key));
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    let wanted: Vec<Setting> = view.settings.into_iter().filter(wanted).collect();
    ensure!(
        !wanted.is_empty() || key.is_none(),
        "`{}`: the server has no such setting",
        key.unwrap_or_default()
    );
    let one_setting = key.is_some_and(|key| wanted.iter().any(|setting| setting.setting == key));
    let (default, set): (Vec<Setting>, Vec<Setting>) =
        wanted.into_iter().partition(|setting| setting.origin == "default" && !all && !one_setting);
    let mut text = match &view.file {
        Some(file) => format!("file: {file}\n"),
        None => "file: none\n".to_owned(),
    };
    if let Some(LastReload { at, successful, problem }) = &view.last_reload {
        let problem = problem.as_deref().unwrap_or("the reason is unknown");
        text += &match successful {
            true => format!("last reload: {at}\n"),
            false => format!("last reload: {at}, refused: {problem}\n"),
        };
    }
    if !set.is_empty() {
        let rows = set.into_iter().map(|one| {
            let takes_effect = format!("at {}", one.takes_effect);
            vec![one.setting, value(&one.value), one.origin, takes_effect]
        });
        text += "\n";
        text += &output::table(&["setting", "value", "from", "a change takes effect"], rows);
    }
    if !default.is_empty() {
        text += &format!("\n{} more with their defaults: `--all` shows them\n", default.len());
    }
    text += &waiting(&view.pending);
    Ok(text)
}

fn differences(report: &Report) -> String {
    if report.changes.is_empty() && report.pending.is_empty() {
        return "no setting would change\n".to_owned();
    }
    let mut text = String::new();
    if !report.changes.is_empty() {
        text += "a reload would change:\n";
        text += &table(&report.changes);
    }
    text + &waiting(&report.pending)
}

fn reloaded(report: &Report) -> String {
    let mut text = match report.changes.as_slice() {
        [] => "reloaded: no setting changed\n".to_owned(),
        changes => format!("reloaded:\n{}", table(changes)),
    };
    for (model, Loaded { loaded, unloaded }) in &report.models {
        loaded.iter().for_each(|version| text += &format!("{model}: version {version} loaded\n"));
        unloaded.iter().for_each(|version| text += &format!("{model}: version {version} unloaded\n"));
    }
    for (model, reason) in &report.not_loaded {
        text += &format!("{model}: still not loaded: {reason}\n");
    }
    text + &waiting(&report.pending)
}

fn waiting(pending: &[Change]) -> String {
    if pending.is_empty() {
        return String::new();
    }
    format!("\nin force after a restart only:\n{}", table(pending))
}

fn table(changes: &[Change]) -> String {
    let rows = changes.iter().map(|one| vec![one.setting.clone(), value(&one.old), value(&one.new)]);
    output::table(&["setting", "in force", "new"], rows)
}

fn value(value: &Value) -> String {
    match value {
        Value::Null => "not set".to_owned(),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn view() -> View {
        serde_json::from_value(json!({
            "file": "tessera.toml",
            "settings": [
                { "setting": "limits.queue", "value": 7, "origin": "file tessera.toml:2", "takes_effect": "restart" },
                { "setting": "limits.body", "value": "64MiB", "origin": "default", "takes_effect": "restart" },
                { "setting": "limitsx.body", "value": null, "origin": "flag --set", "takes_effect": "reload" },
            ],
            "pending": [{ "setting": "limits.queue", "old": 7, "new": 8, "takes_effect": "restart" }],
            "last_reload": { "at": "2026-01-01T00:00:00Z", "successful": false, "problem": "wrong" },
        }))
        .unwrap()
    }

    #[test]
    fn defaults_are_shown_if_asked_for() {
        let text = shown(view(), None, false).unwrap();
        assert!(
            text.contains("limits.queue") && text.contains("not set") && !text.contains("64MiB"),
            "{text}"
        );
        assert!(text.contains("1 more with their defaults") && text.contains("refused: wrong"), "{text}");
        assert!(text.contains("in force after a restart only"), "{text}");
        assert!(shown(view(), None, true).unwrap().contains("64MiB"));
        let section = shown(view(), Some("limits"), true).unwrap();
        assert!(section.contains("limits.body") && !section.contains("limitsx"), "{section}");
        assert!(shown(view(), Some("limits.body"), false).unwrap().contains("64MiB"), "named, so shown");
        assert!(shown(view(), Some("nope"), false).is_err());
    }

    #[test]
    fn what_a_reload_did_is_told_by_setting_and_model() {
        let report: Report = serde_json::from_value(json!({
            "changes": [{ "setting": "models.m.slo", "old": null, "new": "50ms" }],
            "pending": [],
            "models": { "m": { "loaded": [2], "unloaded": [1], "changes": [] } },
            "not_loaded": { "n": "no file" },
        }))
        .unwrap();
        let text = reloaded(&report);
        for part in [
            "models.m.slo",
            "\"50ms\"",
            "m: version 2 loaded",
            "m: version 1 unloaded",
            "n: still not loaded",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let nothing = Report {
            changes: Vec::new(),
            pending: Vec::new(),
            models: BTreeMap::new(),
            not_loaded: BTreeMap::new(),
        };
        assert_eq!(differences(&nothing), "no setting would change\n");
        assert!(differences(&report).starts_with("a reload would change"));
    }
}
