//! What differs between two configurations.

use std::collections::BTreeMap;

use serde::{Serialize, Serializer};
use toml::Table;

use super::reference::{TakesEffect, is_live};
use super::{Config, Effective, Problems, merge};

/// A setting that differs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Change {
    /// `section.key`.
    #[serde(rename = "setting")]
    pub path: String,
    /// Value before, as TOML. `None`: not set.
    #[serde(serialize_with = "as_json")]
    pub old: Option<String>,
    /// Value after, as TOML. `None`: not set.
    #[serde(serialize_with = "as_json")]
    pub new: Option<String>,
    /// When the new value has an effect.
    pub takes_effect: TakesEffect,
}

/// A value written as TOML, for programs that read JSON.
pub fn toml_as_json(value: &str) -> serde_json::Value {
    let table = format!("value = {value}").parse::<Table>().ok();
    let parsed = table.and_then(|mut table| table.remove("value"));
    parsed.and_then(|value| serde_json::to_value(value).ok()).unwrap_or_else(|| value.into())
}

fn as_json<S: Serializer>(value: &Option<String>, serializer: S) -> Result<S::Ok, S::Error> {
    value.as_deref().map(toml_as_json).serialize(serializer)
}

/// Settings that differ, sorted by path.
pub fn changes(old: &[Effective], new: &[Effective]) -> Vec<Change> {
    let mut values: BTreeMap<&str, [Option<&String>; 2]> = BTreeMap::new();
    for (side, effective) in [old, new].into_iter().enumerate() {
        for one in effective {
            if let Some(value) = values.entry(&one.path).or_default().get_mut(side) {
                *value = one.value.as_ref();
            }
        }
    }
    let differing = values.into_iter().filter(|(_, [old, new])| old != new);
    let change = |(path, [old, new]): (&str, [Option<&String>; 2])| Change {
        path: path.to_owned(),
        old: old.cloned(),
        new: new.cloned(),
        takes_effect: if is_live(path) { TakesEffect::Reload } else { TakesEffect::Restart },
    };
    differing.map(change).collect()
}

impl Config {
    /// This configuration with the settings of `new` that a reload takes up.
    ///
    /// # Errors
    /// Settings of `new` that contradict what is in force until a restart.
    pub fn reloaded(&self, new: &Self) -> Result<Self, Problems> {
        let mut mixed = self.clone();
        mixed.file.clone_from(&new.file);
        mixed.server.log_level.clone_from(&new.server.log_level);
        mixed.tenants.clone_from(&new.tenants);
        mixed.models.clone_from(&new.models);
        let of = |effective: &[Effective], live: bool| -> Vec<Effective> {
            effective.iter().filter(|one| is_live(&one.path) == live).cloned().collect()
        };
        mixed.effective = of(&self.effective, false);
        mixed.effective.extend(of(&new.effective, true));
        // Files that are missing now were there at the start: they are no reason to refuse a reload.
        let before = self.contradictions();
        let is_known = |path: &str, message: &str| {
            before.iter().any(|known| known.path == path && known.message == message)
        };
        let mut problems = mixed.contradictions();
        problems.retain(|problem| !is_known(&problem.path, &problem.message));
        for problem in &mut problems {
            problem.message.push_str("; settings that changed but need a restart are not in force yet");
        }
        if problems.is_empty() { Ok(mixed) } else { Err(Problems(problems)) }
    }

    /// Takes the settings of one model from another configuration.
    pub fn take_model(&mut self, name: &str, other: &Self) {
        let header = format!("models.{}", merge::quoted(name));
        self.effective.retain(|one| one.header != header);
        self.effective.extend(other.effective.iter().filter(|one| one.header == header).cloned());
        match other.models.get(name) {
            Some(settings) => self.models.insert(name.to_owned(), settings.clone()),
            None => self.models.remove(name),
        };
    }
}

#[cfg(test)]
mod tests {
    use super::super::Sources;
    use super::*;

    fn config(text: &str) -> Config {
        let file = Some(("tessera.toml".into(), text.to_owned()));
        Config::load(&Sources { file, ..Sources::default() }).unwrap()
    }

    fn paths(old: &Config, new: &Config, takes_effect: TakesEffect) -> Vec<String> {
        let all = changes(&old.effective, &new.effective).into_iter();
        all.filter(|change| change.takes_effect == takes_effect).map(|change| change.path).collect()
    }

    #[test]
    fn added_changed_and_removed_settings_are_listed() {
        let old = config("[limits]\nqueue = 7\n[tenants.a]\nweight = 2\n[models.m]\nslo = \"50ms\"\n");
        let new = config("[limits]\nqueue = 8\n[tenants.b]\nweight = 3\n[models.m]\nslo = \"60ms\"\n");
        assert_eq!(paths(&old, &new, TakesEffect::Restart), ["limits.queue"]);
        assert_eq!(
            paths(&old, &new, TakesEffect::Reload),
            ["models.m.slo", "tenants.a.weight", "tenants.b.weight"]
        );
        assert_eq!(changes(&old.effective, &old.effective), []);
        let tenant = changes(&old.effective, &new.effective).pop().unwrap();
        assert_eq!((tenant.old, tenant.new), (None, Some("3".to_owned())));
    }

    #[test]
    fn programs_get_values_as_json() {
        let old = config("[models.m]\nslo = \"50ms\"\n");
        let new =
            config("[models.m]\nslo = \"50ms\"\nbatching = { policy = \"nanily\", preferred = [2, 4] }\n");
        assert_eq!(
            serde_json::to_value(changes(&old.effective, &new.effective)).unwrap(),
            serde_json::json!([{
                "setting": "models.m.batching",
                "old": null,
                "new": { "policy": "nanily", "preferred": [2, 4] },
                "takes_effect": "reload",
            }])
        );
    }

    #[test]
    fn a_reload_takes_live_settings_only() {
        let start = config("[limits]\nqueue = 7\n[tenants.a]\nweight = 2\n");
        let new = config(
            "[limits]\nqueue = 8\n[server]\nlog_level = \"warn\"\n[tenants.b]\nweight = 3\n[models.m]\nslo = \"1s\"\n",
        );
        let in_force = start.reloaded(&new).unwrap();
        assert_eq!(in_force.limits.queue.get(), 7);
        assert_eq!(in_force.server.log_level, "warn");
        assert_eq!(in_force.tenants.keys().collect::<Vec<_>>(), ["b"]);
        assert_eq!(paths(&in_force, &new, TakesEffect::Restart), ["limits.queue"]);
        assert_eq!(paths(&in_force, &new, TakesEffect::Reload), [""; 0]);
        assert_eq!(paths(&in_force, &start.reloaded(&start).unwrap(), TakesEffect::Restart), [""; 0]);
    }

    #[test]
    fn one_model_can_be_taken_alone() {
        let mut in_force =
            config("[models.a]\nslo = \"1s\"\n[models.\"a.b\"]\nslo = \"1s\"\n[models.c]\nslo = \"1s\"\n");
        let new =
            config("[models.a]\nslo = \"2s\"\n[models.\"a.b\"]\nslo = \"2s\"\n[models.c]\nslo = \"2s\"\n");
        in_force.take_model("a", &new);
        assert_eq!(paths(&in_force, &new, TakesEffect::Reload), ["models.a.b.slo", "models.c.slo"]);
        in_force.take_model("c", &config(""));
        assert_eq!(in_force.models.keys().collect::<Vec<_>>(), ["a", "a.b"]);
    }

    #[test]
    fn what_needs_a_restart_is_not_assumed_by_live_settings() {
        let start = config("");
        let new = config("[partition]\nlive = true\n[models.m]\nreplicas_min = 2\n");
        let Problems(problems) = start.reloaded(&new).err().unwrap();
        assert_eq!(problems.len(), 1);
        assert_eq!(problems[0].path, "models.m.replicas_min");
        assert!(problems[0].message.contains("need a restart"), "{}", problems[0].message);
    }

    #[test]
    fn the_objective_of_a_pipeline_is_taken_up_and_its_stages_need_a_restart() {
        let of = |slo: &str, model: &str| {
            config(&format!("[pipelines.p]\nslo = \"{slo}\"\nstages = [{{ model = \"{model}\" }}]\n"))
        };
        let (start, new) = (of("1s", "a"), of("2s", "b"));
        assert_eq!(paths(&start, &new, TakesEffect::Reload), ["pipelines.p.slo"]);
        assert_eq!(paths(&start, &new, TakesEffect::Restart), ["pipelines.p.stages"]);
        let in_force = start.reloaded(&new).unwrap();
        assert_eq!(in_force.models["p"].slo, new.models["p"].slo);
        assert_eq!(in_force.pipelines["p"].stages[0].model, "a");
    }
}
