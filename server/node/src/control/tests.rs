//! Random changes of gpulets, one after another, while every model receives requests continuously.
//!
//! The models are synthetic and the cores are real: the tests cover requests and lanes, not arithmetic.

mod faults;
mod routes;
mod warm;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use gpulet_core::control::VariantPolicy;
use gpulet_core::placement::Policy;
use gpulet_core::plan::{Gpulet, Plan, Slot};
use gpulet_core::rollout::{Event, Outcome, Proposal, Rollout, RolloutOptions};
use gpulet_core::time::Micros;

use super::layout::Layout;
use super::shell::{EffectRunner, Notice};
use super::terms::{Targets, Terms};
use crate::node::Node;
use crate::supervisor::failures;
use crate::testing::{self, add_model, ask};

/// Changes in every test run. The full thousand runs with `--ignored`.
const CHANGES: usize = 60;
const ALL_CHANGES: usize = 1_000;
/// Clients per model. Each sends its next request after the response to the last.
const CLIENTS: u64 = 3;
/// Longest acceptable latency of a request.
const SLO: Duration = Duration::from_secs(2);

/// Models: name, microseconds per batch, microseconds per row.
const MODELS: [(&str, u64, u64); 3] = [("a", 500, 200), ("b", 1_500, 500), ("c", 300, 100)];

/// Pseudo-random numbers: xorshift64*.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 33) % bound
    }
}

fn repository(folder: &Path) {
    for (name, alpha, beta) in MODELS {
        add_model(folder, name, 8, &format!("alpha_us = {alpha}, beta_us = {beta}"));
    }
}

async fn serving(folder: &Path, cores: &[usize]) -> Arc<Node> {
    Arc::new(testing::serving(folder, cores, &[("partition.live", "true")]).await)
}

/// Results that clients received.
#[derive(Default)]
struct Seen {
    answered: AtomicU64,
    wrong: AtomicU64,
    late: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
}

async fn client(node: Arc<Node>, model: &'static str, number: u64, seen: Arc<Seen>) {
    let mut sent = 0_u64;
    while !seen.stop.load(Ordering::SeqCst) {
        sent += 1;
        let arrived = Instant::now();
        match ask(&node, model, [number as f32, sent as f32], Some(arrived + SLO)).await {
            Ok(right) => {
                seen.answered.fetch_add(1, Ordering::SeqCst);
                seen.wrong.fetch_add(u64::from(!right), Ordering::SeqCst);
                seen.late.fetch_add(u64::from(arrived.elapsed() > SLO), Ordering::SeqCst);
            }
            Err(refusal) => {
                println!("{model}: {refusal:?}");
                seen.refused.fetch_add(1, Ordering::SeqCst);
            }
        }
    }
}

/// A random partition of the cores. Every model has a gpulet, and gpulets run one or several models.
fn random_plan(dice: &mut Dice, units: u32) -> Plan {
    let mut segments: Vec<(u32, u32)> = Vec::new();
    let mut first = 0;
    while first < units {
        let size = 1 + u32::try_from(dice.below(u64::from(units - first))).unwrap();
        segments.push((first, size));
        first += size;
    }
    let mut slots: BTreeMap<usize, Vec<Slot>> = BTreeMap::new();
    for (name, ..) in MODELS {
        let required = usize::try_from(dice.below(segments.len() as u64)).unwrap();
        for at in 0..segments.len() {
            if at == required || dice.below(2) == 0 {
                let batch = 1 + u32::try_from(dice.below(8)).unwrap();
                let budget_us = 1_000.0 + dice.below(20_000) as f64;
                slots.entry(at).or_default().push(Slot {
                    workload: name.to_owned(),
                    batch,
                    budget_us,
                    rate: 10.0,
                });
            }
        }
    }
    let gpulets = slots.into_iter().map(|(at, slots)| Gpulet {
        device: "cpu0".into(),
        first_unit: segments[at].0,
        units: segments[at].1,
        window: None,
        duty_us: (slots.len() > 1).then(|| slots.iter().map(|slot| slot.budget_us).sum()),
        slots,
    });
    Plan::new(gpulets.collect())
}

/// A rollout on real lanes without a planner, for tests of the imperative shell.
struct Shell {
    rollout: Rollout,
    runner: EffectRunner,
}

impl Shell {
    /// Starts without a plan in force.
    fn new(rollout: Rollout, layout: Arc<Layout>) -> Self {
        Self { rollout, runner: EffectRunner::new(layout) }
    }

    /// The state of the rollout.
    fn rollout(&self) -> &Rollout {
        &self.rollout
    }

    /// Waits for the next event.
    async fn next(&mut self) -> Event {
        self.runner.next(self.rollout.next_wake()).await
    }

    /// Handles one event and carries out its effects.
    fn process(&mut self, event: Event) -> Vec<Notice> {
        let mut effects = Vec::new();
        self.rollout.handle(self.runner.now(), event, &mut effects);
        effects.into_iter().filter_map(|effect| self.runner.carry_out(effect, &self.rollout)).collect()
    }
}

/// Proposes a plan and handles events until the rollout is idle.
async fn change(shell: &mut Shell, proposal: Proposal) -> Outcome {
    let mut ended = None;
    let mut told = shell.process(Event::Propose(proposal));
    loop {
        for told in told.drain(..) {
            if let Notice::Ended { outcome, .. } = told {
                ended = Some(outcome);
            }
        }
        if shell.rollout().is_idle()
            && let Some(outcome) = ended
        {
            return outcome;
        }
        let event = shell.next().await;
        told = shell.process(event);
    }
}

async fn changes_under_load(count: usize) {
    let folder = tempfile::tempdir().unwrap();
    repository(folder.path());
    let cores: Vec<usize> = gpulet::allowed_cores().unwrap().into_iter().take(4).collect();
    let node = serving(folder.path(), &cores).await;
    let catalog = Arc::clone(node.catalog());
    let models = catalog.all_serving();
    let terms = Terms::new(Arc::clone(node.devices()), Policy::default(), VariantPolicy::default());
    let units = u32::try_from(cores.len()).unwrap();
    let layout = Layout::new(Arc::clone(&catalog), Arc::clone(node.devices()), failures().0, catalog.lanes());
    let options = RolloutOptions { bake_us: Micros(2_000), ..RolloutOptions::default() };
    let mut shell = Shell::new(Rollout::new(options).unwrap(), Arc::new(layout));

    let seen = Arc::new(Seen::default());
    let clients: Vec<_> = MODELS
        .iter()
        .flat_map(|(model, ..)| (0..CLIENTS).map(move |number| (*model, number)))
        .map(|(model, number)| tokio::spawn(client(Arc::clone(&node), model, number, Arc::clone(&seen))))
        .collect();
    let found = terms.initial_plan(&models, &Targets::default()).unwrap();
    let outcome = change(&mut shell, Proposal::new(&found.plan, &found.problem).unwrap()).await;
    assert_eq!(outcome, Outcome::Done);
    let problem = terms.plan(&models, &Targets::default(), None).unwrap().problem;
    let mut dice = Dice(0x5EED);
    let mut done = 0;
    for number in 0..count {
        let before = seen.answered.load(Ordering::SeqCst);
        let plan = random_plan(&mut dice, units);
        let outcome = change(&mut shell, Proposal::new(&plan, &problem).unwrap()).await;
        assert!(
            matches!(outcome, Outcome::Done | Outcome::Unchanged),
            "change {number}: {outcome:?}\n{plan:#?}"
        );
        assert_eq!(shell.rollout().plan(), plan, "change {number}");
        done += usize::from(outcome == Outcome::Done);
        // Requests go on through the new gpulets.
        while seen.answered.load(Ordering::SeqCst) == before {
            tokio::task::yield_now().await;
        }
    }
    seen.stop.store(true, Ordering::SeqCst);
    for client in clients {
        client.await.unwrap();
    }
    let [answered, wrong, late, refused] =
        [&seen.answered, &seen.wrong, &seen.late, &seen.refused].map(|count| count.load(Ordering::SeqCst));
    println!(
        "{done} of {count} plans were changes; {answered} answered, {wrong} wrong, {late} late, {refused} refused"
    );
    assert_eq!((wrong, late, refused), (0, 0, 0));
    assert!(answered as usize > count && done > count / 2);
    let snapshot = catalog.router().snapshot().await.unwrap();
    assert_eq!(snapshot.lanes.len(), shell.rollout().active().count(), "no lane is left behind");
    for loaded in catalog.all_serving() {
        let planned = shell.rollout().plan().slots_of(&loaded.name).count();
        assert_eq!(loaded.lanes().len(), planned, "no session of `{}` is left behind", loaded.name);
    }
    node.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_of_gpulets_lose_no_request() {
    changes_under_load(CHANGES).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes minutes: the same with a thousand changes"]
async fn a_thousand_changes_of_gpulets_lose_no_request() {
    changes_under_load(ALL_CHANGES).await;
}
