//! Any sequence of reloads ends in the behaviour of a node that starts with the last accepted file.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use proptest::prelude::*;

use crate::config::Config;
use crate::node::Node;
use crate::testing::{add_model, ask, serving_file};

/// Why a reload must change nothing.
#[derive(Clone, Copy, Debug)]
enum Mistake {
    None,
    UnknownModel,
    InvalidValue,
    /// Model `b` is set to ONNX Runtime, which is not there. It fails after `a` was staged.
    BrokenModel,
    NeedsRestart,
}

/// One version of the file.
#[derive(Clone, Debug)]
struct File {
    slo: Option<u32>,
    max_batch: Option<u32>,
    policy: Option<&'static str>,
    tenants: BTreeMap<&'static str, (u32, Option<u32>)>,
    queue: u32,
    mistake: Mistake,
}

impl File {
    fn text(&self) -> String {
        let mut text = format!("[limits]\nqueue = {}\n[models.a]\n", self.queue);
        let mut line = |key: &str, value: Option<String>| {
            value.iter().for_each(|value| text.push_str(&format!("{key} = {value}\n")));
        };
        line("slo", self.slo.map(|slo| format!("\"{slo}ms\"")));
        line("max_batch", self.max_batch.map(|rows| rows.to_string()));
        line("batching.policy", self.policy.map(|policy| format!("\"{policy}\"")));
        for (name, (weight, rate)) in &self.tenants {
            text.push_str(&format!("[tenants.{name}]\nweight = {weight}\n"));
            rate.iter().for_each(|rate| text.push_str(&format!("requests_per_second = {rate}.0\n")));
        }
        text.push_str(match self.mistake {
            Mistake::None => "",
            Mistake::UnknownModel => "[models.nope]\nslo = \"1s\"\n",
            Mistake::InvalidValue => "[models.b]\nslo = \"soon\"\n",
            Mistake::BrokenModel => "[models.b]\nengine = \"ort\"\n",
            Mistake::NeedsRestart => "[models.b]\nreplicas_min = 2\n[partition]\nlive = true\n",
        });
        text
    }
}

fn files() -> impl Strategy<Value = File> {
    let mistakes = [
        Mistake::None,
        Mistake::None,
        Mistake::None,
        Mistake::None,
        Mistake::UnknownModel,
        Mistake::InvalidValue,
        Mistake::BrokenModel,
        Mistake::NeedsRestart,
    ];
    let names = prop::sample::select(vec!["x", "y", "z"]);
    (
        prop::option::of(50..60_u32),
        prop::option::of(1..5_u32),
        prop::option::of(prop::sample::select(vec!["triton", "nexus"])),
        prop::collection::btree_map(names, (1..4_u32, prop::option::of(1..9_u32)), 0..3),
        100..103_u32,
        prop::sample::select(mistakes.to_vec()),
    )
        .prop_map(|(slo, max_batch, policy, tenants, queue, mistake)| File {
            slo,
            max_batch,
            policy,
            tenants,
            queue,
            mistake,
        })
}

/// What clients and operators notice of the settings that a reload takes up.
fn behaviour(node: &Node) -> Vec<String> {
    let catalog = node.catalog();
    let models = catalog.serving_names().into_iter().flat_map(|name| catalog.serving(&name));
    let mut seen: Vec<String> = models
        .map(|loaded| {
            let (rows, lanes) = (loaded.signature.max_batch, loaded.lanes().len());
            format!("{} {} {rows} rows, {lanes} lanes: {:?}", loaded.name, loaded.version, loaded.config())
        })
        .collect();
    let table = catalog.tenants().table();
    for (name, tenant) in catalog.tenants().numbers() {
        let number = usize::from(tenant.number());
        seen.push(format!("{name}: {:?} {:?}", table.weights().get(number), table.quotas().get(number)));
    }
    seen.extend(catalog.index(false).iter().map(|row| format!("{row:?}")));
    seen
}

fn live_settings(config: &Config) -> Vec<(String, Option<String>)> {
    let mut live: Vec<_> = config
        .effective
        .iter()
        .filter(|one| crate::config::reference::is_live(&one.path))
        .map(|one| (one.path.clone(), one.value.clone()))
        .collect();
    live.sort();
    live
}

fn in_force(node: &Node) -> Vec<(String, Option<String>)> {
    live_settings(&node.in_force.lock().unwrap().config)
}

async fn check(folder: &Path, start: &File, files: &[File]) {
    let text = Arc::new(Mutex::new(start.text()));
    let node = serving_file(folder, Arc::clone(&text)).await;
    let mut accepted = start;
    for file in files {
        *text.lock().unwrap() = file.text();
        let (before, settings) = (behaviour(&node), in_force(&node));
        let preview = node.preview_reload(Some(file.text())).await;
        // A model that cannot be loaded is found by loading it.
        let finds = matches!(file.mistake, Mistake::None | Mistake::BrokenModel);
        assert_eq!(preview.is_ok(), finds, "{file:?}: {preview:?}");
        assert_eq!((behaviour(&node), in_force(&node)), (before.clone(), settings.clone()), "{file:?}");
        let reloaded = node.reload().await;
        assert_eq!(reloaded.is_ok(), matches!(file.mistake, Mistake::None), "{file:?}: {reloaded:?}");
        match reloaded {
            Ok(report) => {
                let pending: Vec<&str> = report.pending.iter().map(|change| change.path.as_str()).collect();
                let expected: &[&str] = if file.queue == start.queue { &[] } else { &["limits.queue"] };
                assert_eq!(pending, expected);
                let preview = preview.unwrap();
                assert_eq!((preview.changes, preview.pending), (report.changes, report.pending));
                accepted = file;
            }
            Err(_) => assert_eq!((behaviour(&node), in_force(&node)), (before, settings), "{file:?}"),
        }
        for model in ["a", "b"] {
            assert!(ask(&node, model, [1.0, 2.0], None).await.unwrap());
        }
    }
    let fresh = serving_file(folder, Arc::new(Mutex::new(accepted.text()))).await;
    assert_eq!(behaviour(&node), behaviour(&fresh));
    assert_eq!(in_force(&node), in_force(&fresh));
    node.stop().await;
    fresh.stop().await;
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_sequence_of_reloads_is_a_start_with_the_last_accepted_file(
        start in files(),
        reloads in prop::collection::vec(files(), 1..6),
    ) {
        let folder = tempfile::tempdir().unwrap();
        add_model(folder.path(), "a", 4, "alpha_us = 50");
        add_model(folder.path(), "b", 4, "alpha_us = 50");
        let start = File { mistake: Mistake::None, ..start };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        runtime.block_on(check(folder.path(), &start, &reloads));
    }
}
