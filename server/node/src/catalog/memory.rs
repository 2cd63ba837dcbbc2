//! Admission of models into the memory of the server, before they are loaded (docs/switching.md).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use gpulet::{CoresDevice, LaneHandle};
use gpulet_core::memory_ledger::{Entry, MemoryLedger, Need};
use models::{DEFAULT_MAX_BATCH, EffectiveConfig, EngineChoice, Format, LoadOptions, ModelFiles};
use tokio::sync::Notify;

use super::validation::Planned;
use super::{Catalog, LoadState};

/// Copies of the weights of a model with several sessions: as its file has them, and as kernels packed them.
const COPIES_WHEN_SHARED: u64 = 2;

/// The memory of all models.
#[derive(Clone)]
pub(super) struct ModelMemory {
    ledger: Arc<Mutex<MemoryLedger>>,
    /// Best-effort models that were unloaded for others, with what they need.
    evicted: Arc<Mutex<BTreeMap<String, Need>>>,
    /// Held while models are evicted for another one, and while evicted ones are loaded again: otherwise they would take the memory
    /// back before it is entered for the other one, or could not be evicted.
    exchange: Arc<tokio::sync::Mutex<()>>,
    /// Notified when memory was released.
    released: Arc<Notify>,
}

impl ModelMemory {
    pub fn new(bytes: u64) -> Self {
        Self {
            ledger: Arc::new(Mutex::new(MemoryLedger::new(bytes))),
            evicted: Arc::default(),
            exchange: Arc::default(),
            released: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, MemoryLedger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn evicted(&self) -> MutexGuard<'_, BTreeMap<String, Need>> {
        self.evicted.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until memory is released.
    pub async fn released(&self) {
        self.released.notified().await;
    }

    /// Until it is dropped, no model is evicted.
    pub async fn exchange(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.exchange.lock().await
    }

    /// Keeps a model to be loaded again.
    pub fn keep_evicted(&self, name: String, need: Need) {
        self.evicted().insert(name, need);
    }

    /// Evicted models that fit now, each by itself.
    pub fn that_fit(&self) -> Vec<String> {
        let (ledger, evicted) = (self.lock(), self.evicted());
        let fits = |need: &Need| ledger.to_unload(need).is_ok_and(|leaving| leaving.is_empty());
        evicted.iter().filter(|(_, need)| fits(need)).map(|(name, _)| name.clone()).collect()
    }
}

/// Memory of a version, which counts until this is dropped.
pub(super) struct MemoryLease {
    memory: ModelMemory,
    entry: Entry,
}

impl Drop for MemoryLease {
    fn drop(&mut self) {
        self.memory.lock().remove(self.entry);
        self.memory.released.notify_one();
    }
}

impl Catalog {
    /// Options of a version's session on a lane.
    pub(super) fn options_on(&self, config: &EffectiveConfig, lane: &LaneHandle) -> LoadOptions {
        let mut options = config.load_options(lane.cores(), lane.partition().idle_priority());
        // The ledger counts only the largest working memory of a lane's best-effort models.
        options.ort.shrink_arena |=
            self.memory.is_some() && config.best_effort && options.ort.arena.unwrap_or(true);
        options
    }

    /// What a version takes, from its profile, or else from the size of its files.
    pub(super) fn memory_need(&self, planned: &Planned, files: &ModelFiles) -> Result<Need, String> {
        let config = &planned.config;
        let lanes: BTreeSet<u32> = self.lanes_for(config)?.iter().map(LaneHandle::id).collect();
        let profile = self.environment.profiles.iter().find(|profile| {
            profile.model() == config.name.as_str() && profile.device() == CoresDevice::DEVICE_TYPE
        });
        let weights = profile.and_then(|profile| profile.weights_bytes()).unwrap_or(planned.file_bytes);
        let rows = config.max_batch.unwrap_or(DEFAULT_MAX_BATCH).max(1);
        let working = profile.and_then(|profile| profile.arena_bytes(rows)).unwrap_or(0);
        let shares = files.format == Format::Onnx && config.engine != EngineChoice::Named("tract");
        let sessions = lanes.len() as u64;
        let copies = if shares { sessions.min(COPIES_WHEN_SHARED) } else { sessions };
        let persistent = weights.saturating_mul(copies);
        Ok(Need { persistent, working, lanes, best_effort: config.best_effort })
    }

    /// Enters a version into the ledger, once best-effort models whose memory it needs are unloaded. None without a ledger.
    ///
    /// # Errors
    /// It does not fit, or a model whose memory it needs is being loaded.
    pub(super) async fn reserve_memory(&self, name: &str, need: Need) -> Result<Option<MemoryLease>, String> {
        let Some(memory) = &self.memory else { return Ok(None) };
        let refuse = |reason: String| format!("`limits.model_memory`: {reason}");
        let mut exchange = None;
        loop {
            let leaving = {
                let mut ledger = memory.lock();
                let leaving = ledger.to_unload(&need).map_err(|error| refuse(error.to_string()))?;
                if leaving.is_empty() {
                    let entry = ledger.admit(name, need).map_err(|error| refuse(error.to_string()))?;
                    return Ok(Some(MemoryLease { memory: memory.clone(), entry }));
                }
                leaving
            };
            if exchange.is_none() {
                exchange = Some(memory.exchange().await);
                // What has to leave may have changed since.
                continue;
            }
            for model in leaving {
                self.evict(&model, name).await.map_err(&refuse)?;
            }
        }
    }

    /// Unloads a best-effort model whose memory another model needs.
    async fn evict(&self, name: &str, wanted_by: &str) -> Result<(), String> {
        let Some(model) = self.models.get(name).map(|entry| Arc::clone(entry.value())) else {
            return Err(format!("the memory of model `{name}` is not released yet: load it again"));
        };
        // Waiting could be for a load that waits for this one.
        let Ok(_control) = model.control.try_lock() else {
            return Err(format!(
                "the memory of model `{name}` is needed, which is being loaded or unloaded: load it again"
            ));
        };
        let need = self.memory.as_ref().and_then(|memory| memory.lock().need_of(name));
        let serving = model.serving.swap(Arc::default());
        if serving.is_empty() {
            return Err(format!("the memory of model `{name}` is not released yet: load it again"));
        }
        tracing::warn!(
            model = name,
            wanted_by,
            "unloaded: it is of best effort, and another model needs its memory"
        );
        self.want(name, false);
        model.rollouts.supersede();
        for &version in serving.keys() {
            model.set(version, LoadState::Unloading);
        }
        for (&version, loaded) in serving.iter() {
            self.retire(loaded).await;
            let reason =
                format!("unloaded, because model `{wanted_by}` needs its memory (`limits.model_memory`)");
            model.set(version, LoadState::Unavailable(reason));
        }
        if let (Some(memory), Some(need)) = (&self.memory, need) {
            memory.keep_evicted(name.to_owned(), need);
        }
        Ok(())
    }

    /// A client loads or unloads a model, so it does not come back by itself.
    pub(super) fn forget_evicted(&self, name: &str) {
        if let Some(memory) = &self.memory {
            memory.evicted().remove(name);
        }
    }

    pub(super) fn is_evicted(&self, name: &str) -> bool {
        self.memory.as_ref().is_some_and(|memory| memory.evicted().contains_key(name))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::catalog::LoadPriority;
    use crate::config::{Assignment, Config, Origin, Sources};
    use crate::node::Node;
    use crate::testing::{add_model, ask, serving};

    /// Adds a model with files of a little more than `kib` KiB.
    fn add(repository: &Path, name: &str, kib: usize) {
        add_model(repository, name, 1, "alpha_us = 10, beta_us = 10");
        std::fs::write(repository.join(name).join("1/weights.bin"), vec![0; kib << 10]).unwrap();
    }

    async fn load(node: &Node, name: &str) -> Result<(), String> {
        let loaded = node.catalog().load(name, LoadPriority::Background).await;
        loaded.map(drop).map_err(|refusal| refusal.message)
    }

    async fn answers(node: &Node, name: &str) -> Result<bool, String> {
        ask(node, name, [1.0, 2.0], None).await.map_err(|refusal| refusal.message)
    }

    /// A server with a best-effort model `job` that must leave for `large`, which the repository has by then.
    async fn with_a_job(repository: &Path) -> Node {
        add(repository, "job", 200);
        let options = [("limits.model_memory", "400KiB"), ("models.job.class", "best_effort")];
        let node = serving(repository, &[0], &options).await;
        add(repository, "large", 290);
        node
    }

    async fn until(condition: impl AsyncFn() -> bool) {
        let holds = async {
            while !condition().await {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(std::time::Duration::from_secs(30), holds).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn best_effort_models_leave_for_others_and_return_when_memory_is_free() {
        let repository = tempfile::tempdir().unwrap();
        let node = with_a_job(repository.path()).await;
        add(repository.path(), "small", 90);
        load(&node, "small").await.unwrap();
        assert_eq!(answers(&node, "job").await, Ok(true), "both fit");

        load(&node, "large").await.unwrap();
        assert_eq!(answers(&node, "large").await, Ok(true));
        assert_eq!(answers(&node, "small").await, Ok(true), "ordinary models stay");
        assert!(answers(&node, "job").await.is_err());
        let row = node.catalog().index(false).into_iter().find(|row| row.name == "job").unwrap();
        assert!(row.reason.contains("because model `large` needs its memory"), "{}", row.reason);
        assert_eq!(node.not_ready(), None, "an unloaded model does not keep the server from being ready");

        let refused = load(&node, "job").await.unwrap_err();
        assert!(refused.contains("`limits.model_memory`: needs 1 MiB of memory"), "{refused}");
        assert!(refused.contains("it fits without model `large`"), "{refused}");
        assert_eq!(answers(&node, "large").await, Ok(true), "a best-effort model takes nothing from others");
        node.catalog().unload("large").await.unwrap();
        load(&node, "job").await.unwrap();
        assert_eq!(answers(&node, "job").await, Ok(true));

        load(&node, "large").await.unwrap();
        assert!(answers(&node, "job").await.is_err());
        let returns = tokio::spawn(std::sync::Arc::clone(node.catalog()).return_evicted());
        node.catalog().unload("large").await.unwrap();
        until(async || answers(&node, "job").await == Ok(true)).await;

        load(&node, "large").await.unwrap();
        node.catalog().unload("job").await.unwrap();
        node.catalog().unload("large").await.unwrap();
        load(&node, "small").await.unwrap();
        assert!(answers(&node, "job").await.is_err(), "a client unloaded it since");
        returns.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_model_gets_its_memory_at_any_moment_of_the_return_of_another() {
        let repository = tempfile::tempdir().unwrap();
        let node = with_a_job(repository.path()).await;
        let returns = tokio::spawn(std::sync::Arc::clone(node.catalog()).return_evicted());
        for moment in 0..100 {
            load(&node, "large").await.unwrap();
            assert_eq!(answers(&node, "large").await, Ok(true));
            node.catalog().unload("large").await.unwrap();
            for _ in 0..moment {
                tokio::task::yield_now().await;
            }
        }
        returns.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_return_that_fails_is_tried_again_until_a_client_unloads_the_model() {
        let repository = tempfile::tempdir().unwrap();
        let node = with_a_job(repository.path()).await;
        let description = repository.path().join("job/1/model.toml");
        let right = std::fs::read(&description).unwrap();
        let returns = tokio::spawn(std::sync::Arc::clone(node.catalog()).return_evicted());
        let reason = || {
            let row = node.catalog().index(false).into_iter().find(|row| row.name == "job").unwrap();
            row.reason
        };
        let fail_to_return = async || {
            load(&node, "large").await.unwrap();
            std::fs::write(&description, "max_batch = 1\n").unwrap();
            node.catalog().unload("large").await.unwrap();
            until(async || reason().contains("model.toml")).await;
            std::fs::write(&description, &right).unwrap();
        };

        fail_to_return().await;
        assert_eq!(node.not_ready(), None, "an unloaded model does not keep the server from being ready");
        load(&node, "large").await.unwrap();
        node.catalog().unload("large").await.unwrap();
        until(async || answers(&node, "job").await == Ok(true)).await;

        fail_to_return().await;
        node.catalog().unload("job").await.unwrap();
        load(&node, "large").await.unwrap();
        node.catalog().unload("large").await.unwrap();
        load(&node, "large").await.unwrap();
        assert!(answers(&node, "job").await.is_err(), "a client unloaded it since");
        returns.abort();
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_load_that_fails_leaves_nothing_in_the_ledger_and_a_reload_counts_twice() {
        let repository = tempfile::tempdir().unwrap();
        add(repository.path(), "a", 150);
        let node = serving(repository.path(), &[0], &[("limits.model_memory", "400KiB")]).await;
        add(repository.path(), "broken", 200);
        std::fs::write(repository.path().join("broken/1/model.toml"), "max_batch = 1\n").unwrap();
        assert!(load(&node, "broken").await.is_err());
        // The old version serves until the new one does.
        add_model(repository.path(), "a", 1, "alpha_us = 20, beta_us = 10");
        load(&node, "a").await.unwrap();
        add(repository.path(), "b", 150);
        load(&node, "b").await.unwrap();
        add(repository.path(), "c", 150);
        assert!(load(&node, "c").await.unwrap_err().contains("limits.model_memory"));
        assert_eq!((answers(&node, "a").await, answers(&node, "b").await), (Ok(true), Ok(true)));
    }

    #[test]
    fn a_limit_next_to_another_account_of_memory_is_refused() {
        let set = |path: &str, raw: &str| Assignment {
            path: path.to_owned(),
            raw: raw.to_owned(),
            origin: Origin::Flag("--set"),
        };
        for (other, value) in [("partition.live", "true"), ("devices.gpus", "auto")] {
            let flags = vec![set("limits.model_memory", "1GiB"), set(other, value)];
            let problems = Config::load(&Sources { flags, ..Sources::default() }).unwrap_err();
            let said = problems.to_string();
            assert!(said.contains(&format!("limits.model_memory: set together with {other}")), "{said}");
        }
    }
}
