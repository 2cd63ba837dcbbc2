//! Warm sessions: one core whose models change repeatedly.

use gpulet::{CoresDevice, Device};
use gpulet_core::time::Micros;
use models::Loader;

use super::*;
use crate::catalog::WarmPoolCounts;
use crate::devices::{Devices, Share};

const CHANGES: u64 = 6;

/// One gpulet of one core that runs these models.
pub fn plan(models: &[&str]) -> Plan {
    let slot =
        |model: &&str| Slot { workload: (*model).to_owned(), batch: 2, budget_us: 5_000.0, rate: 10.0 };
    let slots: Vec<Slot> = models.iter().map(slot).collect();
    let duty_us = Some(slots.iter().map(|slot| slot.budget_us).sum());
    let device = "cpu0".into();
    Plan::new(vec![Gpulet { device, first_unit: 0, units: 1, window: None, duty_us, slots }])
}

/// The warm pool after alternating plans of `a` with `b` and of `a` with `c`, and the bytes that the last plan leaves.
/// `memory` computes the device's memory from the bytes of each model.
async fn changes(memory: impl Fn(&BTreeMap<String, u64>) -> u64) -> (WarmPoolCounts, u64) {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let cores: Vec<usize> = gpulet::allowed_cores().unwrap().into_iter().take(1).collect();
    let node = serving(folder.path(), &cores).await;
    let catalog = Arc::clone(node.catalog());
    let models = catalog.all_serving();
    let bytes = models.iter().map(|loaded| (loaded.name.clone(), loaded.file_bytes)).collect();
    let memory = memory(&bytes);
    let device: Arc<dyn Device> =
        Arc::new(CoresDevice::new("cpu0", cores, memory, Arc::new(Loader::without_ort())));
    let start = vec![Share { device: "cpu0".into(), first_unit: 0, units: 1, idle_priority: false }];
    let devices = Arc::new(Devices::from_parts(vec![device], start));
    let terms = Terms::new(Arc::clone(&devices), Policy::default(), VariantPolicy::default());
    let layout = Layout::new(Arc::clone(&catalog), devices, failures().0, catalog.lanes());
    let options = RolloutOptions { bake_us: Micros(2_000), ..RolloutOptions::default() };
    let mut shell = Shell::new(Rollout::new(options).unwrap(), Arc::new(layout));
    let found = terms.initial_plan(&models, &Targets::default()).unwrap();
    let mut reach =
        async |plan: &Plan| change(&mut shell, Proposal::new(plan, &found.problem).unwrap()).await;
    assert_eq!(reach(&found.plan).await, Outcome::Done);
    for round in 0..CHANGES {
        let other = if round % 2 == 0 { "b" } else { "c" };
        assert_eq!(reach(&plan(&["a", other])).await, Outcome::Done, "round {round}");
    }
    let kept = catalog.warm_pool_counts();
    for (name, ..) in MODELS {
        catalog.unload(name).await.unwrap();
    }
    assert_eq!(catalog.warm_pool_counts().sessions, 0, "unloaded models have no warm sessions");
    node.stop().await;
    (kept, memory - bytes["a"] - bytes["c"])
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plan_that_wants_what_another_had_loads_nothing() {
    let (kept, _) = changes(|_| u64::MAX).await;
    // The first change needs a second session of both models while the first ones serve. From then on there are two
    // sessions of `a`, and enough of the others.
    assert_eq!((kept.loaded, kept.taken, kept.sessions), (2, 2 * (CHANGES - 1), 3));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_kept_leaves_plans_their_memory() {
    // As much as the first change needs for old and new sessions.
    let (kept, beyond) = changes(|bytes| 2 * (bytes["a"] + bytes["b"]) + bytes["c"]).await;
    assert!(kept.bytes <= beyond, "{kept:?}, {beyond} bytes are left");
    assert!(kept.loaded > 2 && kept.taken > 0, "{kept:?}");
}
