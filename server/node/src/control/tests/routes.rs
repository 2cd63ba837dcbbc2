//! Models that a plan leaves out, and models that are loaded after it.

use super::warm::plan;
use gpulet_core::problem::Problem;

use super::*;
use crate::catalog::LoadPriority;

/// Changes from a plan with a model to one without it, and back.
const CHANGES: usize = 40;

struct OneCore {
    node: Arc<Node>,
    layout: Arc<Layout>,
    shell: Shell,
    problem: Problem,
}

async fn one_core(folder: &Path, options: &[(&str, &str)]) -> OneCore {
    repository(folder);
    let cores: Vec<usize> = gpulet::allowed_cores().unwrap().into_iter().take(1).collect();
    let node = Arc::new(testing::serving(folder, &cores, options).await);
    let catalog = Arc::clone(node.catalog());
    let terms = Terms::new(Arc::clone(node.devices()), Policy::default(), VariantPolicy::default());
    let layout = Layout::new(Arc::clone(&catalog), Arc::clone(node.devices()), failures().0, catalog.lanes());
    let layout = Arc::new(layout);
    let options = RolloutOptions { bake_us: Micros(2_000), ..RolloutOptions::default() };
    let shell = Shell::new(Rollout::new(options).unwrap(), Arc::clone(&layout));
    let problem = terms.plan(&catalog.all_serving(), &Targets::default(), None).unwrap().problem;
    OneCore { node, layout, shell, problem }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_loaded_after_a_plan_serves_before_the_next() {
    let folder = tempfile::tempdir().unwrap();
    let OneCore { node, layout, mut shell, problem } =
        one_core(folder.path(), &[("partition.live", "true")]).await;
    let catalog = node.catalog();
    catalog.unload("c").await.unwrap();
    let proposal = Proposal::new(&plan(&["a", "b"]), &problem).unwrap();
    assert_eq!(change(&mut shell, proposal).await, Outcome::Done);
    catalog.load("c", LoadPriority::Background).await.unwrap();
    assert!(!layout.is_stale(), "the table would take its lanes away");
    assert!(ask(&node, "c", [1.0, 2.0], None).await.unwrap());
    add_model(folder.path(), "b", 4, "alpha_us = 100, beta_us = 100");
    catalog.load("b", LoadPriority::Background).await.unwrap();
    assert!(layout.is_stale(), "`b` has a route, and its new version has no time slice");
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_wait_while_a_plan_leaves_their_model_out() {
    let folder = tempfile::tempdir().unwrap();
    let options = [("partition.live", "true"), ("partition.idle", "1h")];
    let OneCore { node, mut shell, problem, .. } = one_core(folder.path(), &options).await;
    let seen = Arc::new(Seen::default());
    let ask_again = async |node: Arc<Node>, seen: Arc<Seen>| {
        while !seen.stop.load(Ordering::SeqCst) {
            let count = match ask(&node, "c", [1.0, 2.0], None).await {
                Ok(_) => &seen.answered,
                Err(_) => &seen.refused,
            };
            count.fetch_add(1, Ordering::SeqCst);
        }
    };
    let clients: Vec<_> =
        (0..CLIENTS).map(|_| tokio::spawn(ask_again(Arc::clone(&node), Arc::clone(&seen)))).collect();
    for number in 0..CHANGES {
        let models: &[&str] = if number % 2 == 0 { &["a", "b"] } else { &["a", "b", "c"] };
        let proposal = Proposal::new(&plan(models), &problem).unwrap();
        assert_eq!(change(&mut shell, proposal).await, Outcome::Done, "change {number}");
    }
    seen.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    assert_eq!(seen.refused.load(Ordering::SeqCst), 0);
    assert!(seen.answered.load(Ordering::SeqCst) > 0);
    node.stop().await;
}
