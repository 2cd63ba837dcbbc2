//! Which versions of a model a load is to serve.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use models::{ModelName, ModelSettings, Version};

use super::background::LoadPriority;
use super::rollouts::Plan;
use super::validation::Severity;
use super::version::Loaded;
use super::{Catalog, Model};

/// The versions that a load is to serve.
pub(super) struct Selection {
    /// Smallest first.
    pub versions: Vec<Version>,
    /// The two of them that are to share the requests without a version.
    pub rollout: Option<Plan>,
    /// Versions that are left out because they were rolled back.
    pub rejected: BTreeSet<u64>,
}

impl Catalog {
    /// The versions that the settings ask for, without those that were rolled back, and with the stable version of a roll-out.
    pub(super) async fn select(
        self: &Arc<Self>,
        name: &ModelName,
        settings: &ModelSettings,
        model: &Model,
        before: &BTreeMap<u64, Arc<Loaded>>,
        priority: LoadPriority,
    ) -> Result<Selection, String> {
        let rejected = self.still_rejected(name, settings, model, priority).await?;
        let (mut versions, findings) = self.checks().versions_without(&rejected, name, settings);
        findings.iter().for_each(|finding| finding.log(name));
        match findings.into_iter().find(|finding| finding.severity == Severity::Error) {
            Some(error) if error.place == name.as_str() => return Err(error.message),
            Some(error) => return Err(format!("{}: {}", error.place, error.message)),
            None => {}
        }
        if versions.is_empty() {
            versions = before.keys().copied().map(Version).collect();
        }
        let Some(&Version(newest)) = versions.last() else {
            return Err("every version that its settings ask for was rolled back: load it again with `tessera models load`, or \
                        add another version"
                .to_owned());
        };
        let rollout = settings.rollout.as_ref().and_then(|rollout| {
            let stable = self.stable_version(name, model, before, newest, &rejected)?;
            let keeps_stable = versions.contains(&Version(stable));
            Some(Plan { stable, canary: newest, keeps_stable, settings: rollout.clone() })
        });
        if let Some(plan) = rollout.as_ref().filter(|plan| !plan.keeps_stable) {
            versions.push(Version(plan.stable));
            versions.sort_unstable_by_key(|version| version.0);
        }
        Ok(Selection { versions, rollout, rejected })
    }

    /// The version that a new one is measured against: the one that serves, or at a start the one before it in the repository. `None`:
    /// the newest one replaces what serves at once.
    fn stable_version(
        &self,
        name: &ModelName,
        model: &Model,
        before: &BTreeMap<u64, Arc<Loaded>>,
        newest: u64,
        rejected: &BTreeSet<u64>,
    ) -> Option<u64> {
        let stable = match model.default_version() {
            Some(serving) => Some(serving.version).filter(|version| before.contains_key(version)),
            None => {
                let known = self.source.versions(name).unwrap_or_default();
                known.into_iter().filter(|version| *version < newest && !rejected.contains(version)).max()
            }
        };
        // To go back to an earlier version needs no trial.
        stable.filter(|version| *version < newest)
    }

    /// Versions that were rolled back, and whose files are as they were then.
    async fn still_rejected(
        self: &Arc<Self>,
        name: &ModelName,
        settings: &ModelSettings,
        model: &Model,
        priority: LoadPriority,
    ) -> Result<BTreeSet<u64>, String> {
        let rejected = model.rollouts.rejected();
        if rejected.is_empty() {
            return Ok(BTreeSet::new());
        }
        let (catalog, name, settings) = (Arc::clone(self), name.clone(), settings.clone());
        let work = move || {
            let is_same = |version, hash| {
                catalog
                    .plan(&name, Version(version), &settings)
                    .is_ok_and(|(planned, _)| planned.hash == hash)
            };
            rejected
                .into_iter()
                .filter(|&(version, hash)| is_same(version, hash))
                .map(|(version, _)| version)
                .collect()
        };
        self.background.load(priority, work).await.map_err(|lost| format!("{lost} while its files were read"))
    }
}
